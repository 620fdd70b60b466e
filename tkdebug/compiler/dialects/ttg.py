"""Triton's ttg dialect: layout conversions, shared-memory buffers, async copies."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import DotLike, MaskedAccess, OneResult
from tkdebug.compiler.ir.op_view import (
    BUFFERS,
    CONDITIONS,
    I32,
    TILES,
    TOKENS,
    VALUES,
    OpView,
    attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    variadic_operands_def,
)


class ConvertLayout(OneResult):
    """The same tile in another layout."""

    name = "ttg.convert_layout"
    source = operand_def(TILES)


class LocalAlloc(OneResult):
    """A buffer (or several) in shared memory; with an operand it holds that tile."""

    name = "ttg.local_alloc"
    source = optional_operand_def(TILES)
    # In bytes.
    alignment = optional_attribute_def("alignment", int)
    offset = optional_attribute_def("offset", int)


class LocalDealloc(OpView):
    """Ends a buffer's life before its last use would."""

    name = "ttg.local_dealloc"
    buffer = operand_def(BUFFERS)


class LocalLoad(OneResult):
    """What a buffer holds, as a tile."""

    name = "ttg.local_load"
    buffer = operand_def(BUFFERS)


class LocalStore(OpView):
    """Puts a tile into a buffer."""

    name = "ttg.local_store"
    source = operand_def(VALUES)
    buffer = operand_def(BUFFERS)


class MemDescView(OneResult):
    """Another view of a buffer, or of a part of it."""

    buffer = operand_def(BUFFERS)


class MemDescIndex(MemDescView):
    """One buffer of several."""

    name = "ttg.memdesc_index"
    index = operand_def(I32)


class MemDescTrans(MemDescView):
    """A buffer seen with its dimensions permuted."""

    name = "ttg.memdesc_trans"
    order = attribute_def("order", tuple[int, ...])


class MemDescSubslice(MemDescView):
    """A part of a buffer, from `offsets` on, as large as the result."""

    name = "ttg.memdesc_subslice"
    offsets = attribute_def("offsets", tuple[int, ...])


class AsyncCopyGlobalToLocal(MaskedAccess, OneResult):
    """Starts a copy from memory (where the mask holds; `other` or zero elsewhere) to a buffer."""

    name = "ttg.async_copy_global_to_local"
    buffer = operand_def(BUFFERS)
    mask = optional_operand_def(CONDITIONS)
    other = optional_operand_def(VALUES)


class AsyncCommitGroup(OneResult):
    """Makes one group of all copies started since the last one."""

    name = "ttg.async_commit_group"
    tokens = variadic_operands_def(TOKENS)


class AsyncWait(OneResult):
    """Waits until at most the last `num` groups are still on their way."""

    name = "ttg.async_wait"
    tokens = variadic_operands_def(TOKENS)
    num = attribute_def("num", int)


class LocalDot(DotLike):
    """a @ b + acc on FMA units, which read a and b from shared memory a few k at a time."""

    name = "ttg.local_dot"
