"""Finding a function's source: what it spans, and that every node's line is the file's."""

import ast
import inspect
import linecache

import pytest

from tkdebug.compiler.frontend.source import KernelSource


def nothing(*arguments, **keywords):
    return lambda function: function


# fmt: off
@nothing(
    [1, 2],
    key="def",
)
def decorated(
    x,
    y=(
1),
):
    """Text
at the margin."""
# a comment at the margin
    text = """
def other():
"""

    return x + y, text  # last


def one_line(x): return x


class Holder:
    def method(self):
        total = [
    1,
        ]
        return total
# fmt: on


def make():
    @nothing()
    def closure(x):
        # why
        return x

    return closure


@pytest.mark.parametrize("fn", [decorated, one_line, Holder.method, make()])
def test_source_spans_the_function_and_its_lines_are_those_of_the_file(fn):
    source = KernelSource.of(fn)
    lines, first = inspect.getsourcelines(fn)
    assert source.first_line == first
    assert list(source.lines) == [line.rstrip("\n") for line in lines]
    file_lines = linecache.getlines(source.file)
    for node in ast.walk(source.definition):
        if isinstance(node, ast.Name):
            assert file_lines[node.lineno - 1][node.col_offset :].startswith(node.id)


def test_closures_made_anew_share_their_source():
    assert KernelSource.of(make()) is KernelSource.of(make())


def test_same_text_in_two_files_is_two_sources_of_one_ast():
    found = []
    for file in ("<first>", "<second>"):
        text = "def same(x):\n    return x\n"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        namespace = {}
        exec(compile(text, file, "exec"), namespace)
        found.append(KernelSource.of(namespace["same"]))
    first, second = found
    assert (first.file, second.file) == ("<first>", "<second>")
    assert first.definition is second.definition
