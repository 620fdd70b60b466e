"""Writes the pages of the language from the op table.

`python -m tkdebug.compiler.ops.reference [--check]` writes docs/language.md, and in docs/language/
a page for each family of functions, named after its module, one for each namespace of NVIDIA's,
and one for the ops of the IR. Nothing is listed there that the table does not have.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tkdebug.compiler.dialects import libdevice
from tkdebug.compiler.dialects.interfaces import Effects, Op
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.dtypes import MEMBERS
from tkdebug.compiler.ops.spec import Builtin
from tkdebug.compiler.ops.table import FAMILIES, NAMESPACES

DOCS = Path(__file__).resolve().parents[3] / "docs"
OPS_PAGE = "language/ops.md"
# The pages of functions that are in modules below `tl`.
_NAMESPACE_PAGES = {"tl.core": "conversion", "tl.extra.cuda": "cuda"}
_EFFECTS = (
    (Effects.READ, "reads memory"),
    (Effects.WRITE, "writes memory"),
    (Effects.TERMINATOR, "ends its block"),
    (Effects.OTHER, "observable"),
)
_INTRODUCTION = """\
# The language

`import triton.language as tl` and `import tkdebug.language as tl` import the same functions. A
function marked *method* is also one of tensors: `x.sum(0)`.

All functions compile natively, and all that are not marked *native only* can be
interpreted. An interpreted kernel that calls a *native only* function is refused by name.

`python -m tkdebug.compiler.ops.reference` generates these pages from the op table.
Differences from Triton:
[Versions of Triton](triton_versions.md#what-triton-refuses-and-tkdebug-runs).

## Functions

| page | functions |
|---|---|
"""
_SEMANTICS = """\
## Numeric semantics

- Python numbers beside a tensor are weak: they take its dtype where it is of their kind or a wider
  one. Rules that differed before Triton 3.9 are on [a page of their own](triton_versions.md).
- bf16 with fp16 gives fp16; bf16 with a wider float gives that; fp8 with bf16 gives fp32; `/` on
  halves and integers gives fp32. The wider of two integers wins, unsigned on a tie.
- `//` and `%` truncate toward zero on tensors and follow Python on constants. `>>` is arithmetic
  on signed integers. Integers wrap at their width.
- Casts round to nearest even, or toward zero with `fp_downcast_rounding="rtz"`; fp8 saturates;
  anything to int1 is `!= 0`. Float to integer truncates and saturates; to 8 bits it is the low
  byte of what 16 bits hold (140.0 to int8 is -116), as on the GPU.
- `sum` keeps fp16 and bf16 and widens integers below 32 bits. `max` and `min` widen what is below
  32 bits, to fp32 or int32. `argmax` and `argmin` take
  the leftmost on ties. Maximum and minimum ignore NaN unless `PropagateNan.ALL` is given.
- A masked load without `other` gives 0 where the mask is false; the language leaves it undefined.
- `dot` of fp32 uses tf32 unless `input_precision="ieee"`; sums are fp32 (int32 for int8). With
  `out_dtype=tl.float16` they are rounded to it after each 16 products, as tensor cores do.
- Reductions of fp16 and bf16 round, and overflow, at each step; a GPU's order of steps is its own.
- Interpreted, `exp`, `/`, `sqrt` and the like are computed to full precision; a GPU approximates
  them.
"""


@dataclass(frozen=True, slots=True)
class _FunctionPage:
    """Functions of the language that are described together.

    Attributes:
        title: the page's first heading; what follows a colon is its first paragraph.
        functions: the functions by namespace and name.
    """

    title: str
    functions: dict[str, Mapping[str, Builtin]]


def pages() -> dict[str, str]:
    """Return the text of every page, by its path in docs/."""
    described = _function_pages()
    index = "\n".join([_INTRODUCTION + _contents(described), _SEMANTICS, *_types()])
    return {
        "language.md": index,
        **{f"language/{name}.md": "\n".join(_functions(p)) for name, p in described.items()},
        "language/libdevice.md": "\n".join(_libdevice()),
        OPS_PAGE: "\n".join(_ops()) + "\n",
    }


def _function_pages() -> dict[str, _FunctionPage]:
    """Return the pages of functions, by file name."""
    described = {
        family.__name__.rpartition(".")[2]: _FunctionPage(_title(family), {"tl": family.LANGUAGE})
        for family in FAMILIES
        if family.LANGUAGE
    }
    for namespace, name in _NAMESPACE_PAGES.items():
        page = described.setdefault(name, _FunctionPage(f"`{namespace}`", {}))
        page.functions[namespace] = NAMESPACES[namespace]
    return described


def _contents(described: Mapping[str, _FunctionPage]) -> str:
    """Return the rows of the index: each page with its functions."""
    rows = []
    for file, page in described.items():
        names = ", ".join(
            f"`{space}.{name}`" for space, of in page.functions.items() for name in of
        )
        rows.append(f"| [{page.title.partition(':')[0]}](language/{file}.md) | {names} |\n")
    library = f"{len(libdevice.FUNCTIONS)} functions of NVIDIA's device library"
    rows.append(f"| [`tl.extra.libdevice`](language/libdevice.md) | {library} |\n")
    rows.append(f"| [Ops of the IR]({OPS_PAGE}) | {len(OPS)} ops |\n")
    return "".join(rows)


def _types() -> Iterator[str]:
    yield "## Types\n"
    yield ", ".join(f"`tl.{name}`" for name in MEMBERS) + ", `tl.pointer_type`, `tl.block_type`,"
    yield "`tl.tensor`, `tl.tensor_descriptor`, `tl.constexpr`, `tl.const`, `tl.tuple`.\n"


def _functions(page: _FunctionPage) -> Iterator[str]:
    title, colon, rest = page.title.partition(": ")
    yield f"# {title}\n"
    if colon:
        yield f"{rest[0].upper()}{rest[1:]}.\n"
    for namespace, functions in page.functions.items():
        for name, builtin in functions.items():
            yield from _function(namespace, name, builtin)


def _title(family: object) -> str:
    """Return the first sentence of a family's docstring."""
    first = (inspect.getdoc(family) or "").splitlines()[0]
    return first.rstrip(".")


def signature_text(builtin: Builtin) -> str:
    """A function's parameters, without annotations."""
    shown = [
        parameter.replace(annotation=parameter.empty)
        for parameter in builtin.__signature__.parameters.values()
        if parameter.name != "emit"
    ]
    return str(inspect.Signature(shown)).replace(", /", "")


def _function(namespace: str, name: str, builtin: Builtin) -> Iterator[str]:
    method = " *method*" if builtin.member else ""
    yield f"## `{namespace}.{name}{signature_text(builtin)}`{method}\n"
    doc = inspect.cleandoc(builtin.__doc__ or "")
    text, _, arguments = doc.partition("Args:\n")
    yield text.strip() + "\n"
    entries = [
        line
        for line in inspect.cleandoc(" \n" + arguments).splitlines()
        if line.strip() and not line.startswith("emit:")
    ]
    for entry in entries:
        parameter, colon, rest = entry.partition(": ")
        if colon and parameter.isidentifier() and not entry.startswith(" "):
            yield f"- `{parameter}`: {rest}"
        else:
            yield f"  {entry.strip()}"
    if entries:
        yield ""


def _libdevice() -> Iterator[str]:
    yield "# `tl.extra.libdevice`\n"
    yield (
        "Also `tl.extra.cuda.libdevice`. Arguments must have exactly the types of an overload; of "
        "Python's numbers\nfloats are fp32, and integers int32.\n"
    )
    yield "| function | types | computes |"
    yield "|---|---|---|"
    for name, function in libdevice.FUNCTIONS.items():
        result = "int1" if function.is_predicate else None
        overloads = ", ".join(
            f"({', '.join(map(str, o.arguments))}) → {result or o.result}"
            for o in function.overloads
        )
        only = " *native only*" if function.native_only else ""
        yield f"| `{name}` | {overloads} | {function.doc.replace('|', chr(92) + '|')}{only} |"
    yield ""


def _ops() -> Iterator[str]:
    yield "# Ops of the IR\n"
    yield "| op | operands | computes | effects |"
    yield "|---|---|---|---|"
    for view in OPS.values():
        doc = view.summary().replace("|", "\\|")
        yield f"| `{view.name}` | {_operands(view)} | {doc} | {_effects(view)} |"


def _operands(view: type[Op]) -> str:
    """Return the operands' names; optional ones in brackets, variadic ones with dots."""
    declared = view.declaration
    names = [operand.name for operand in declared.operands]
    names += [f"[{operand.name}]" for operand in declared.optional]
    names += [f"{operand.name}…" for operand in declared.variadic]
    return ", ".join(names) or "none"


def _effects(view: type[Op]) -> str:
    return ", ".join(text for flag, text in _EFFECTS if flag in view.effects) or "none"


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` return 1 if one is not up to date."""
    texts = {DOCS / path: text for path, text in pages().items()}
    if "--check" in arguments:
        return int(any(not p.exists() or p.read_text("utf-8") != text for p, text in texts.items()))
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
