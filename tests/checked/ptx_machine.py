"""Runs the PTX of a whole kernel in Python, one block at a time, as the PTX ISA says.

All threads of a block hold each register as one numpy array of bits. Of the threads that are not at
a barrier those that are furthest behind run the next instruction, so that threads which went apart
meet again. Memory is what a launch was given: an access of anything else is an error, as it may be
on a GPU. Only what checked kernels use is known; all other instructions are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ptx_arithmetic import (
    ATOMICS,
    FLOAT,
    FLOATS,
    INTEGER,
    JOINS,
    Bits,
    Mask,
    as_float,
    compared,
    flushed,
    mask,
    of_float,
    signed,
)
from ptx_memory import Local, Memory, OutsideError, Shared
from ptx_program import WIDTHS, Instruction, Program

_WARP = 32


class UnknownPtxError(Exception):
    """An instruction that the machine does not know."""


class Block:
    """One block of a launch.

    Args:
        program: of the kernel.
        parameters: packed, in order.
        memory: what it may access.
        place: program ids, and how many there are, along x, y, z.
        threads: how many the block has.
        shared_bytes: dynamic shared memory.
    """

    def __init__(
        self,
        program: Program,
        parameters: Sequence[bytes],
        memory: Memory,
        place: tuple[tuple[int, ...], tuple[int, ...]],
        threads: int,
        shared_bytes: int,
    ) -> None:
        self._program = program
        self._parameters = parameters
        self._memory = memory
        self._count = threads
        self._registers: dict[str, Bits] = {}
        self._shared = np.zeros(program.static_bytes + shared_bytes, np.uint8)
        self._local = np.zeros((threads, program.local_bytes), np.uint8)
        self._at = np.zeros(threads, np.int64)
        self._waits = np.zeros(threads, bool)
        ids, counts = place
        number = np.arange(threads, dtype=np.uint64)
        self._special = {"%tid.x": number, "%laneid": number % np.uint64(_WARP)}
        for axis, (one, many) in enumerate(zip(ids, counts, strict=True)):
            self._special[f"%ctaid.{'xyz'[axis]}"] = np.full(threads, one, np.uint64)
            self._special[f"%nctaid.{'xyz'[axis]}"] = np.full(threads, many, np.uint64)
        for axis in "yz":
            self._special[f"%tid.{axis}"] = np.zeros(threads, np.uint64)
        self._special["%ntid.x"] = np.full(threads, threads, np.uint64)
        self._here = np.zeros(threads, bool)

    def run(self) -> None:
        """Until all threads have ended."""
        end = len(self._program.code)
        with np.errstate(all="ignore"):
            while (self._at < end).any():
                ready = (self._at < end) & ~self._waits
                if not ready.any():
                    self._waits[:] = False  # all that are left have arrived
                    continue
                place = int(self._at[ready].min())
                at_it = ready & (self._at == place)
                one = self._program.code[place]
                self._at[at_it] += 1
                self._here = at_it if one.guard is None else at_it & self._holds(*one.guard)
                if self._here.any():
                    try:
                        self._execute(one)
                    except OutsideError as error:
                        threads = np.flatnonzero(self._here)
                        shown = f"{'.'.join(one.parts)} {', '.join(one.operands)}"
                        raise OutsideError(f"{shown}: {error}, of threads {threads}") from None

    def _holds(self, name: str, is_negated: bool) -> Mask:
        return (self._read(name, "pred") != 0) != is_negated

    # Operands

    def _read(self, text: str, kind: str) -> Bits:
        if text in self._special:
            return self._special[text]
        if text.startswith("!"):
            return self._read(text[1:], kind) ^ np.uint64(1)
        if text.startswith("%") or "@" in text:
            found = self._registers.get(text)
            return np.zeros(self._count, np.uint64) if found is None else found
        return np.full(self._count, self._constant(text, kind), np.uint64)

    def _constant(self, text: str, kind: str) -> int:
        for variables in (self._program.shared, self._program.local):
            if text in variables:
                return variables[text]
        if re.fullmatch(r"0[fd][0-9A-Fa-f]+", text):
            bits = int(text[2:], 16)
            return bits
        if not re.fullmatch(r"-?\w+", text) or not text.lstrip("-")[:1].isdigit():
            raise UnknownPtxError(f"the variable {text}")
        return int(text.removesuffix("U"), 0) & (1 << 64) - 1

    def _write(self, text: str, value: Any, kind: str) -> None:
        if text == "_":
            return
        bits = np.asarray(value).astype(np.uint64) & mask(min(64, WIDTHS[kind]))
        held = self._registers.get(text)
        if held is None:
            held = self._registers[text] = np.zeros(self._count, np.uint64)
        held[self._here] = np.broadcast_to(bits, (self._count,))[self._here]

    def _address(self, text: str) -> tuple[str, Bits]:
        inside = text.strip("[] ")
        name, sign, offset = re.fullmatch(r"([%\w$@.]+)\s*(?:([+])\s*(-?\w+))?", inside).groups()  # type: ignore[union-attr]
        moved = np.uint64(int(offset, 0) & (1 << 64) - 1) if sign else np.uint64(0)
        return name, self._read(name, "b64") + moved if name not in self._program.parameters else (
            np.full(self._count, moved)
        )

    # Instructions

    def _execute(self, one: Instruction) -> None:
        name = one.parts[0]
        method: Callable[[Instruction], None] | None = getattr(self, f"_do_{name}", None)
        if method is not None:
            method(one)
        elif name in INTEGER and not one.type.startswith(("f", "bf")):
            self._integer(one)
        elif name in FLOAT:
            self._float(one)
        else:
            raise UnknownPtxError(".".join(one.parts))

    def _integer(self, one: Instruction) -> None:
        kind, bits = one.type, WIDTHS[one.type]
        target, *operands = one.operands
        wide = f"b{2 * bits}" if "wide" in one.parts else kind
        # The third operand of a wide `mad` is as wide as its result.
        kinds = [kind, kind, wide]
        values = [
            self._read(text, one_kind) & mask(WIDTHS[one_kind])
            for text, one_kind in zip(operands, [*kinds, kind], strict=False)
        ]
        self._write(target, INTEGER[one.parts[0]](one, bits, *values), wide)

    def _float(self, one: Instruction) -> None:
        kind = one.type
        target, *operands = one.operands
        if kind == "f16x2":
            halves = []
            for shift in (np.uint64(0), np.uint64(16)):
                parts = [self._read(t, kind) >> shift & np.uint64(0xFFFF) for t in operands]
                values = [as_float(part, "f16") for part in parts]
                halves.append(of_float(FLOAT[one.parts[0]](one, *values), "f16") << shift)
            self._write(target, halves[0] | halves[1], kind)
            return
        values = [as_float(self._read(text, kind), kind) for text in operands]
        if "sat" in one.parts:
            raise UnknownPtxError(".".join(one.parts))
        if "ftz" in one.parts:
            values = [flushed(value) for value in values]
        result = FLOAT[one.parts[0]](one, *values)
        result = flushed(result) if "ftz" in one.parts else result
        self._write(target, of_float(result, kind), kind)

    def _do_mov(self, one: Instruction) -> None:
        target, source = one.operands
        bits = WIDTHS[one.type]
        if target.startswith("{"):
            names = _names(target)
            width = bits // len(names)
            value = self._read(source, one.type)
            for number, name in enumerate(names):
                self._write(name, value >> np.uint64(number * width), f"b{width}")
        elif source.startswith("{"):
            names = _names(source)
            width = bits // len(names)
            parts = [self._read(name, f"b{width}") & mask(width) for name in names]
            shifted = [part << np.uint64(n * width) for n, part in enumerate(parts)]
            self._write(target, np.bitwise_or.reduce(shifted), one.type)
        else:
            self._write(target, self._read(source, one.type), one.type)

    def _do_cvta(self, one: Instruction) -> None:
        self._write(one.operands[0], self._read(one.operands[1], "u64"), "u64")

    def _do_selp(self, one: Instruction) -> None:
        target, yes, no, choice = one.operands
        holds = self._read(choice, "pred") != 0
        self._write(target, np.where(holds, self._read(yes, "b"), self._read(no, "b")), one.type)

    def _do_setp(self, one: Instruction) -> None:
        kind, joined = one.type, one.parts[2] in JOINS
        *targets, left, right = one.operands[:-1] if joined else one.operands
        x, y = (self._read(text, kind) for text in (left, right))
        found = compared(one.parts[1], kind, x, y)
        for target, result in zip(targets, (found, ~found), strict=False):
            if joined:
                other = self._read(one.operands[-1], "pred") != 0
                result = JOINS[one.parts[2]](result, other)
            self._write(target, result, "pred")

    def _do_cvt(self, one: Instruction) -> None:
        kinds = [part for part in one.parts if part in WIDTHS]
        if len(kinds) != 2:
            raise UnknownPtxError(".".join(one.parts))
        to, of = kinds
        target, *sources = one.operands
        if len(sources) > 1 or "relu" in one.parts or "sat" in one.parts:
            raise UnknownPtxError(".".join(one.parts))
        value = self._read(sources[0], of)
        is_float = [kind.startswith(("f", "bf")) for kind in (to, of)]
        if not any(is_float):
            is_signed = of.startswith("s")
            wide = (
                signed(value, WIDTHS[of]).view(np.uint64) if is_signed else value & mask(WIDTHS[of])
            )
            if to.startswith("s"):
                # A register that is wider than the type gets copies of its sign.
                wide, to = signed(wide, WIDTHS[to]).view(np.uint64), f"b{max(32, WIDTHS[to])}"
            self._write(target, wide, to)
        elif all(is_float):
            number = as_float(value, of)
            for mode, rounded in (("rni", np.rint), ("rmi", np.floor), ("rpi", np.ceil)):
                number = rounded(number) if mode in one.parts else number
            number = np.trunc(number) if "rzi" in one.parts else number
            self._write(target, of_float(number.astype(np.float64), to), to)
        elif is_float[0]:
            integer = signed(value, WIDTHS[of]) if of.startswith("s") else value & mask(WIDTHS[of])
            self._write(target, of_float(integer.astype(FLOATS.get(to, np.float32)), to), to)
        else:
            number = np.trunc(as_float(value, of)).astype(np.float64)
            bits, is_signed = WIDTHS[to], to.startswith("s")
            low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if is_signed else (0.0, 2.0**bits)
            number = np.where(np.isnan(number), 0, number)
            exact = [
                int(min(max(x, low), high - 1 if bits < 64 else high)) for x in number.tolist()
            ]
            top = (1 << bits - 1) - 1 if is_signed else (1 << bits) - 1
            kept = [min(x, top) & (1 << 64) - 1 for x in exact]
            self._write(target, np.array(kept, np.uint64), to)

    def _do_ld(self, one: Instruction) -> None:
        target, source = one.operands[:2]
        size = WIDTHS[one.type] // 8
        names = _names(target) if target.startswith("{") else [target]
        name, addresses = self._address(source)
        if "param" in one.parts:
            data = np.frombuffer(self._parameters[self._program.parameters[name]], np.uint8)
            offset = int(addresses[0])
            rows = np.broadcast_to(
                data[offset : offset + size * len(names)], (self._count, size * len(names))
            )
        else:
            rows = np.zeros((self._count, size * len(names)), np.uint8)
            where = addresses[self._here]
            rows[self._here] = self._space(one).load(where, size * len(names))
        for number, each in enumerate(names):
            part = rows[:, number * size : (number + 1) * size].astype(np.uint64)
            value = np.bitwise_or.reduce([part[:, n] << np.uint64(8 * n) for n in range(size)])
            if one.type.startswith("s"):
                value = signed(value, size * 8).view(np.uint64)
            self._write(each, value, "b64")

    def _do_st(self, one: Instruction) -> None:
        target, source = one.operands[:2]
        size = WIDTHS[one.type] // 8
        names = _names(source) if source.startswith("{") else [source]
        _, addresses = self._address(target)
        columns = [
            self._read(each, one.type) >> np.uint64(8 * n) & np.uint64(255)
            for each in names
            for n in range(size)
        ]
        data = np.stack(columns, 1).astype(np.uint8)[self._here]
        self._space(one).store(addresses[self._here], data)

    def _space(self, one: Instruction) -> Memory:
        if any(part.startswith("shared") for part in one.parts):
            return Shared(self._shared)
        if "local" in one.parts:
            return Local(self._local, self._here)
        if "global" not in one.parts:
            raise UnknownPtxError(".".join(one.parts))
        return self._memory

    def _do_atom(self, one: Instruction) -> None:
        target, place, *operands = one.operands
        bits, kind = WIDTHS[one.type], one.type
        _, addresses = self._address(place)
        space, values = self._space(one), [self._read(text, kind) for text in operands]
        old = np.zeros(self._count, np.uint64)
        what = next(part for part in one.parts if part in ATOMICS)
        for thread in np.flatnonzero(self._here).tolist():
            where = addresses[thread : thread + 1]
            had = int.from_bytes(space.load(where, bits // 8).tobytes(), "little")
            given = [int(value[thread]) & (1 << bits) - 1 for value in values]
            new = ATOMICS[what](kind, bits, had, *given)
            row = np.frombuffer((new & (1 << bits) - 1).to_bytes(bits // 8, "little"), np.uint8)
            space.store(where, row[None])
            old[thread] = had
        self._write(target, old, f"b{bits}")

    def _do_red(self, one: Instruction) -> None:
        self._do_atom(Instruction(one.guard, one.parts, ("_", *one.operands)))

    def _do_bra(self, one: Instruction) -> None:
        self._at[self._here] = self._program.labels[one.operands[0]]

    def _do_ret(self, one: Instruction) -> None:
        self._at[self._here] = len(self._program.code)

    _do_exit = _do_ret

    def _do_bar(self, one: Instruction) -> None:
        self._waits |= self._here

    _do_barrier = _do_bar

    def _do_membar(self, one: Instruction) -> None:
        """Threads of this machine run in one order."""

    _do_fence = _do_griddepcontrol = _do_nanosleep = _do_membar

    def _do_cp(self, one: Instruction) -> None:
        if one.parts[:2] != ("cp", "async"):
            raise UnknownPtxError(".".join(one.parts))
        if any(part in one.parts for part in ("commit_group", "wait_group", "wait_all")):
            return
        target, source, size, *rest = one.operands
        count = int(size, 0)
        _, to = self._address(target)
        _, of = self._address(source)
        kept = self._read(rest[0], "b32") if rest else np.full(self._count, count, np.uint64)
        for thread in np.flatnonzero(self._here).tolist():
            row = np.zeros((1, count), np.uint8)
            if taken := int(kept[thread]):
                row[:, :taken] = self._memory.load(of[thread : thread + 1], taken)
            Shared(self._shared).store(to[thread : thread + 1], row)

    def _do_shfl(self, one: Instruction) -> None:
        targets, rest = one.operands[:-4], one.operands[-4:]
        value, lane, clamp = (self._read(text, "b32") for text in rest[:3])
        number = np.arange(self._count)
        own, first = number % _WARP, number // _WARP * _WARP
        segment, most = (clamp >> np.uint64(8)).astype(np.int64) & 31, clamp.astype(np.int64) & 31
        least = own & segment
        highest = least | (most & ~segment)
        moved = lane.astype(np.int64) & 31
        mode = one.parts[2]
        chosen = {"up": own - moved, "down": own + moved, "bfly": own ^ moved}.get(
            mode, least | (moved & ~segment)
        )
        is_in = chosen >= highest if mode == "up" else chosen <= highest
        self._write(targets[0], value[first + np.where(is_in, chosen, own)], "b32")
        if len(targets) > 1:
            self._write(targets[1], is_in, "pred")

    def _do_vote(self, one: Instruction) -> None:
        target, source, _ = one.operands
        holds = (self._read(source, "pred") != 0) & self._here
        warps = np.arange(self._count) // _WARP
        if "ballot" in one.parts:
            lanes = np.where(
                holds, 1 << np.arange(self._count, dtype=np.uint64) % np.uint64(_WARP), 0
            )
            self._write(target, np.bincount(warps, lanes.astype(np.float64))[warps], "b32")
            return
        votes = np.bincount(warps, holds)[warps]
        there = np.bincount(warps, self._here)[warps]
        self._write(target, votes > 0 if "any" in one.parts else votes == there, "pred")

    def _do_activemask(self, one: Instruction) -> None:
        warps = np.arange(self._count) // _WARP
        lanes = np.where(self._here, 2.0 ** (np.arange(self._count) % _WARP), 0)
        self._write(one.operands[0], np.bincount(warps, lanes)[warps], "b32")

    def _do_redux(self, one: Instruction) -> None:
        target, source, _ = one.operands
        value = self._read(source, one.type)
        bits = WIDTHS[one.type]
        warps = np.arange(self._count) // _WARP
        what = next(part for part in one.parts if part in ATOMICS)
        out = np.zeros(self._count, np.uint64)
        for warp in np.unique(warps[self._here]).tolist():
            members = np.flatnonzero((warps == warp) & self._here).tolist()
            total = int(value[members[0]])
            for member in members[1:]:
                total = ATOMICS[what](one.type, bits, total, int(value[member])) & (1 << bits) - 1
            out[members] = total
        self._write(target, out, one.type)

    def _do_match(self, one: Instruction) -> None:
        target, source, _ = one.operands
        value, warps = self._read(source, one.type), np.arange(self._count) // _WARP
        lanes = np.where(self._here, 2.0 ** (np.arange(self._count) % _WARP), 0)
        same = (value[:, None] == value) & (warps[:, None] == warps)
        self._write(target, same @ lanes, "b32")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.strip("{}").split(",")]
