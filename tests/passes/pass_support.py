"""Parts that the pass tests share: text in, text out, with every check on."""

from __future__ import annotations

from textwrap import dedent, indent

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import Pass, PassManager
from tkdebug.compiler.rewriting.rewriter import RewriteRecord

PARAMETERS = "%p: !tt.ptr<i32>, %n: i32, %m: i32, %c: i1, %x: f32, %v: tensor<8x16xf32>"


def run_on(body: str, *passes: Pass) -> tuple[str, tuple[RewriteRecord, ...]]:
    """The body after the passes, and their records; verified after each pass."""
    text = f"tt.func @k({PARAMETERS}) {{\n{dedent(body)}\ntt.return\n}}"
    module = parse_module(text)
    runs = PassManager(passes, verify_each=True, print_after=()).run(module)
    lines = print_module(module).splitlines()[1:-2]
    return dedent("\n".join(lines)) + "\n", tuple(r for run in runs for r in run.records)


def expect(body: str, expected: str, *passes: Pass) -> tuple[RewriteRecord, ...]:
    """Check the body after the passes; the records."""
    got, records = run_on(body, *passes)
    wanted = dedent(expected).strip("\n") + "\n"
    assert got == wanted, "\n" + indent(got, "    ")
    return records
