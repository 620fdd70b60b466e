"""What each kind of fault is, in one line: for formats that explain their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tkdebug.records.events import FaultKind

DESCRIPTIONS: Mapping[FaultKind, str] = {
    "oob-load": "A load reads outside the tensor that was passed.",
    "oob-store": "A store writes outside the tensor that was passed.",
    "oob-atomic": "An atomic operation accesses memory outside the tensor that was passed.",
    "between-elements": "An access falls between the elements of a strided view.",
    "race": "Two programs of a launch access the same element in no certain order.",
    "nan": "A kernel stores a NaN that it made itself.",
    "inf": "A kernel stores an Inf, or a NaN made from one, that it computed from finite values.",
    "padding": "Elements that a load masks off change what a reduction gives.",
    "narrowing": "A conversion to a narrower type loses the value that it was given.",
    "uninitialised-read": "A kernel reads memory that nothing has written.",
    "unwritten-output": "A launch leaves gaps in a fresh tensor that it stores to.",
    "coverage": "A launch leaves out, or adds up twice, elements of an input that it is to read.",
    "row-overrun": "An access leaves its row for the next one of the same tensor.",
    "thread-order": "Threads of one program access the same memory, and nothing orders them.",
    "division-by-zero": "The result of an integer division by zero is used.",
    "shift-range": "The result of a shift by the width of its type or more is used.",
    "offset-overflow": "An offset that wrapped around leads an access.",
    "negative-remainder": "The remainder of a negative number leads an access before its tensor.",
    "undefined-value": "What a masked-off load without `other` gives is used.",
    "misaligned-descriptor": "A tensor descriptor, or a block of it, is where TMA takes none.",
    "assumption": "A fact that the kernel lets the compiler assume does not hold.",
    "plugin-check": "A check of a plugin found something.",
    "assert": "A device assertion failed.",
    "mismatch": "A tensor that a launch wrote is not what the script compares it with.",
    "misaligned": "A native kernel accessed a misaligned address.",
    "illegal-address": "A native kernel accessed an illegal address.",
    "illegal-instruction": "A native kernel ran into an illegal instruction.",
    "trap": "A native kernel ran into a trap.",
    "stack-overflow": "A native kernel overflowed its stack.",
    "gpu-exception": "A native kernel ended by another exception of the GPU.",
    "hang": "A kernel did not end; here its warps were waiting.",
    "cuda-error": "A CUDA error ended the kernels in flight.",
    "compile-error": "A kernel does not compile.",
    "triton-refuses": "A kernel that tkdebug compiles is refused by the Triton that was asked.",
    "triton-accepts": "A kernel that tkdebug refuses is compiled by the Triton that was asked.",
}
