"""Compiles and runs kernels with an installed Triton, in a process of its own.

Run as a script by a Python that has Triton and need not have tkdebug: nothing of it is imported. It
reads a question a line from stdin, JSON as `questions.py` beside it writes it, and answers each by
a line of JSON on stdout. A question holds the text of the kernel and of the functions that it
calls, and the values of their names; no script is run here. To compile needs no GPU. A question
with `launch` is to run the kernel, on the memory in a file, to which it is written back.

Invariant: stdout has answers alone; output of Triton and LLVM is kept for the current answer.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import importlib
import json
import linecache
import os
import re
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

_TEXT_CHARS = 2000
_DIAGNOSTIC = re.compile(r"^(?P<file>[^\n]*?):(?P<line>\d+):\d+: error: (?P<text>.*)$", re.M)
# LLVM's message before it gives up.
_BREAKDOWN = re.compile(r"^(?:[^\n]*: )?(LLVM ERROR: .*|Assertion .* failed)\.?$", re.M)
# MLIR's output besides its errors.
_EMPTY = ("Failures have been detected while processing an MLIR pass pipeline",)


class NotRebuiltError(Exception):
    """Something of the question is not in this Triton, or cannot be made here."""


class _Unsendable:
    """A placeholder for a value that could not be sent, and that decides nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Rebuilt:
    """The functions of one question, as jit functions of this Triton.

    Args:
        triton: the package.
        functions: their descriptions, the kernel's first.
    """

    def __init__(self, triton: Any, functions: Sequence[Mapping[str, Any]]) -> None:
        self._triton = triton
        self._described = functions
        self._made: dict[int, Any] = {}
        self._lines: dict[str, dict[int, str]] = {}
        self._classes: dict[tuple[str, ...], Any] = {}
        self.places: dict[str, tuple[str, int, str]] = {}
        for described in functions:
            self._remember_lines(described)

    def function(self, number: int) -> Any:
        """Return one of the functions, made together with the functions that it calls."""
        if number not in self._made:
            described = self._described[number]
            namespace: dict[str, Any] = {"__name__": described["module"]}
            function, first_line = _python_function(described, namespace)
            self._made[number] = made = self._decorated(function, described)
            if isinstance(getattr(made, "src", None), str):
                self.places[made.src] = (described["file"], first_line, described["name"])
            for name, value in described["names"].items():
                namespace[name] = self.value(value)
            defaults = [self.value(value) for value in described["defaults"]]
            function.__defaults__ = tuple(defaults) or None
            keyword_defaults = described["keyword_defaults"].items()
            named = {name: self.value(value) for name, value in keyword_defaults}
            function.__kwdefaults__ = named or None
        return self._made[number]

    def _decorated(self, function: FunctionType, described: Mapping[str, Any]) -> Any:
        match described["kind"]:
            case "jit":
                return self._triton.jit(
                    function,
                    noinline=described["noinline"],
                    do_not_specialize=described["do_not_specialize"],
                )
            case "constexpr":
                return self._triton.constexpr_function(function)
            case _:
                return function

    def value(self, described: Any) -> Any:
        """Return the value that a description describes."""
        if not isinstance(described, dict):
            return described
        ((kind, what),) = described.items()
        language = self._triton.language
        match kind:
            case "function":
                return self.function(what)
            case "public":
                return _public(*what)
            case "constexpr":
                return language.constexpr(self.value(what))
            case "dtype":
                return language.dtype(what)
            case "pointer":
                return language.pointer_type(self.value(what[0]), const=what[1])
            case "block":
                return language.block_type(self.value(what[0]), what[1])
            case "tuple":
                return tuple(self.value(item) for item in what)
            case "list":
                return [self.value(item) for item in what]
            case "dict":
                return {self.value(key): self.value(item) for key, item in what}
            case "named":
                name, members, items = what
                return self._named(name, members)(*map(self.value, items))
            case "named class":
                return self._named(*what)
            case "class":
                return type(what, (), {})
            case "module":
                name, members = what
                module = ModuleType(name)
                vars(module).update({n: self.value(member) for n, member in members.items()})
                return module
            case _:
                return _Unsendable(what)

    def _named(self, name: str, members: Sequence[str]) -> Any:
        """The named tuple of that name: one class, wherever it is in a question."""
        key = (name, *members)
        if key not in self._classes:
            self._classes[key] = namedtuple(name, members)
        return self._classes[key]

    def _remember_lines(self, described: Mapping[str, Any]) -> None:
        """Let `inspect` find a function's text at its place, even if the file there has changed."""
        file, lines = described["file"], self._lines.setdefault(described["file"], {})
        lines.update(enumerate(described["lines"], described["first_line"]))
        # Statements in the gaps end each function's block where it ends.
        text = [lines.get(number, "pass\n") for number in range(1, max(lines) + 2)]
        linecache.cache[file] = (sum(map(len, text)), None, text, file)


def _python_function(
    described: Mapping[str, Any], namespace: dict[str, Any]
) -> tuple[FunctionType, int]:
    """The Python function of a description, and the line of its `def`."""
    tree = ast.parse(textwrap.dedent("".join(described["lines"])))
    definition = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    # Decorators are this module's; defaults are values of the question.
    definition.decorator_list = []
    definition.args.defaults = []
    definition.args.kw_defaults = [None] * len(definition.args.kwonlyargs)
    ast.increment_lineno(definition, described["first_line"] - 1)
    code = compile(
        ast.Module([definition], []),
        described["file"],
        "exec",
        flags=__future__.annotations.compiler_flag,
        dont_inherit=True,
    )
    exec(code, namespace)
    function: FunctionType = namespace.pop(definition.name)
    function.__qualname__ = described["qualname"]
    return function, definition.lineno


def _public(module: str, name: str) -> Any:
    """Return a module, or its attribute of that name."""
    try:
        found: Any = importlib.import_module(module)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotRebuiltError(f"{module}.{name}: {error}") from None
    return found


def _source_of(triton: Any, rebuilt: Rebuilt, question: Mapping[str, Any]) -> Any:
    compiler = importlib.import_module("triton.compiler")
    return compiler.ASTSource(
        fn=rebuilt.function(0),
        signature={name: _types(kind) for name, kind in question["signature"].items()},
        constexprs={tuple(path): rebuilt.value(value) for path, value in question["constants"]},
        attrs={tuple(path): [list(pair) for pair in pairs] for path, pairs in question["attrs"]},
    )


def _types(kind: Any) -> Any:
    return tuple(map(_types, kind)) if isinstance(kind, list) else kind


def _compile(triton: Any, question: Mapping[str, Any], diagnostics: Any) -> dict[str, Any]:
    """The answer to a question, less its number and time."""
    rebuilt = Rebuilt(triton, question["functions"])
    try:
        source = _source_of(triton, rebuilt, question)
    except NotRebuiltError as error:
        return {"verdict": "undecided", "text": str(error)}
    backends = importlib.import_module("triton.backends.compiler")
    target = backends.GPUTarget("cuda", question["capability"], 32)
    # `tl.target_info` asks for the driver's target, and there need be no driver.
    triton.runtime.driver.set_active(SimpleNamespace(get_current_target=lambda: target))
    try:
        triton.compile(source, target=target, options=question["options"])
    except Exception as error:
        return {"verdict": "refuses", **_reason(error, rebuilt, diagnostics)}
    return {"verdict": "takes"}


def _launch(triton: Any, question: Mapping[str, Any], diagnostics: Any) -> dict[str, Any]:
    """The answer to a question that is to run a kernel."""
    torch = importlib.import_module("torch")
    asked = question["launch"]
    rebuilt = Rebuilt(triton, question["functions"])
    held = torch.load(asked["file"], weights_only=True)
    memory = [each.to(asked["device"]) for each in held]
    try:
        kernel = rebuilt.function(0)
        values = [_argument(torch, rebuilt, memory, each) for each in asked["values"]]
    except NotRebuiltError as error:
        return {"verdict": "undecided", "text": str(error)}
    try:
        kernel[tuple(asked["grid"])](*values, **question["options"])
        if asked["device"].startswith("cuda"):
            torch.cuda.synchronize()
    except Exception as error:
        return {"verdict": "refuses", **_reason(error, rebuilt, diagnostics)}
    torch.save([each.cpu() for each in memory], asked["file"])
    return {"verdict": "takes"}


def _argument(torch: Any, rebuilt: Rebuilt, memory: Sequence[Any], described: Any) -> Any:
    """Return an argument of a launch from its description."""
    ((kind, what),) = described.items()
    match kind:
        case "tensor":
            number, dtype, *place = what
            made = torch.empty(0, dtype=getattr(torch, dtype), device=memory[number].device)
            return made.set_(memory[number].untyped_storage(), *place)
        case "descriptor":
            base, *block, padding = what
            tensor = _argument(torch, rebuilt, memory, {"tensor": base})
            named = {} if padding == "zero" else {"padding": padding}
            made = _public("triton.tools.tensor_descriptor", "TensorDescriptor")
            return made(tensor, *block, **named)
        case "tuple":
            return tuple(_argument(torch, rebuilt, memory, each) for each in what)
        case _:
            return rebuilt.value(what)


def _reason(error: BaseException, rebuilt: Rebuilt, diagnostics: Any) -> dict[str, Any]:
    """The text of an error, and its place: the calls that lead there, the outermost first."""
    frames, deepest = [], error
    at: BaseException | None = error
    while at is not None:
        deepest = at
        place = rebuilt.places.get(getattr(at, "src", None) or "")
        if place is not None:
            file, first_line, name = place
            line = getattr(getattr(at, "node", None), "lineno", 1)
            frames.append([file, first_line + line - 1, name])
        at = at.__cause__
    kind = type(deepest).__name__
    # A CompilationError's text has the source's lines in it, which the frames name.
    text = getattr(deepest, "error_message", "") or ""
    if not hasattr(deepest, "error_message"):
        text = f"{kind}: {deepest}"
    printed = _printed(diagnostics)
    diagnostic = next((d for d in _DIAGNOSTIC.finditer(printed) if d["text"] not in _EMPTY), None)
    breakdown = _BREAKDOWN.search(printed)
    if diagnostic is not None and not frames:
        name = next((n for f, _, n in rebuilt.places.values() if f == diagnostic["file"]), "")
        frames = [[diagnostic["file"], int(diagnostic["line"]), name]] if name else []
        text = f"{diagnostic['text']} ({text})"
    elif breakdown is not None and not frames:
        text = f"{breakdown[1]} ({text})"
    text = " ".join(text.split()) or kind
    return {"type": kind, "text": text[:_TEXT_CHARS], "frames": frames}


def _printed(diagnostics: Any) -> str:
    diagnostics.seek(0)
    text: str = diagnostics.read(1 << 20).decode(errors="replace")
    return text


def _answers(send: Callable[[dict[str, Any]], None], diagnostics: Any) -> None:
    """Answer questions until stdin ends."""
    try:
        triton = importlib.import_module("triton")
        importlib.import_module("triton.compiler")
    except Exception as error:
        send({"error": f"{type(error).__name__}: {error}"[:_TEXT_CHARS]})
        return
    send({"version": triton.__version__})
    for line in sys.stdin:
        question = json.loads(line)
        os.ftruncate(diagnostics.fileno(), 0)
        diagnostics.seek(0)
        if hasattr(signal, "alarm"):
            # The alarm ends this process in any loop of LLVM's; nobody waits for it by then.
            signal.alarm(question["limit_s"] + 5)
        started = time.perf_counter()
        try:
            answer_to = _launch if "launch" in question else _compile
            answer = answer_to(triton, question, diagnostics)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:_TEXT_CHARS]
            answer = {"verdict": "undecided", "text": f"the question was not rebuilt: {reason}"}
        seconds = round(time.perf_counter() - started, 4)
        send({"number": question["number"], "seconds": seconds, **answer})


def main(cache: str) -> None:
    """Answer questions on stdin.

    Args:
        cache: a folder for Triton's cache, which is deleted in the end.
    """
    os.environ["TRITON_CACHE_DIR"] = cache
    # The folder of this file has modules of tkdebug's, by names that others may have, too.
    sys.path.pop(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryFile() as diagnostics, os.fdopen(os.dup(1), "w") as out:
        os.dup2(diagnostics.fileno(), 1)
        os.dup2(diagnostics.fileno(), 2)

        def send(answer: dict[str, Any]) -> None:
            out.write(json.dumps(answer) + "\n")
            out.flush()

        with contextlib.suppress(BrokenPipeError):
            _answers(send, diagnostics)
    shutil.rmtree(cache, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
