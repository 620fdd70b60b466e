"""Every intrinsic of the table is one that LLVM knows: none is left in the PTX as a call."""

from __future__ import annotations

import re

import pytest

from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import CodegenError, assemble, emit_ptx
from tkdebug.compiler.targets.nvptx.intrinsics import INTRINSICS

_DECLARATION = re.compile(r"declare (?P<result>.+?) @(?P<name>[\w.]+)\((?P<arguments>.*)\)")
_POINTERS = {"ptr addrspace(3)": "@buffer"}


def kernel_calling(names: list[str]) -> str:
    """LLVM IR of a kernel that calls each intrinsic on loaded values and keeps the results."""
    lines, number = [], 0
    for name in names:
        match = _DECLARATION.fullmatch(INTRINSICS[name].declaration)
        assert match is not None
        assert match["name"] == name
        arguments = []
        for type_ in re.findall(r"<[^>]*>|ptr addrspace\(\d\)|\w+", match["arguments"]):
            if type_ in _POINTERS:
                arguments.append(f"{type_} {_POINTERS[type_]}")
            elif "barrier" in name:
                arguments.append(f"{type_} 0")
            else:
                number += 1
                lines.append(f"%a{number} = load volatile {type_}, ptr addrspace(1) %p")
                arguments.append(f"{type_} %a{number}")
        call = f"call {match['result']} @{name}({', '.join(arguments)})"
        number += 1
        lines.append(call if match["result"] == "void" else f"%r{number} = {call}")
        if match["result"] != "void":
            stored = f"store volatile {match['result']} %r{number}, ptr addrspace(1) %p"
            lines.append(stored)
    declarations = "\n".join(INTRINSICS[name].declaration for name in names)
    body = "\n".join(lines)
    return (
        f"{declarations}\n@buffer = external addrspace(3) global [0 x i8], align 1024\n"
        f"define ptx_kernel void @kernel(ptr addrspace(1) %p) {{\n{body}\nret void\n}}\n"
    )


def test_every_intrinsic_is_known_to_llvm():
    ptx = emit_ptx(kernel_calling(list(INTRINSICS)), "kernel", TARGETS["sm_90a"])
    assert not re.findall(r"\bcall\b", ptx)
    assemble(ptx, "kernel", TARGETS["sm_90a"])


def test_a_misspelt_intrinsic_is_an_error():
    text = kernel_calling(["llvm.nvvm.d2f.rz"]).replace("d2f.rz", "d2f.rzz")
    with pytest.raises(CodegenError, match=r"llvm\.nvvm\.d2f\.rzz"):
        emit_ptx(text, "kernel", TARGETS["sm_90a"])
