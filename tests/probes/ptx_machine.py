"""Runs the PTX of a whole kernel in Python, one block at a time, as the PTX ISA says.

All threads of a block hold each register as one numpy array of bits. Of the threads that are not at
a barrier those that are furthest behind run the next instruction, so that threads which went apart
meet again. Memory is what a launch was given: an access of anything else is an error, as it may be
on a GPU. Only what checked kernels use is known; all other instructions are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_STATEMENT = re.compile(
    r"\s*(?:([$\w]+):(?!:))|\s*([{}])|\s*([^;{}]*(?:\{[^{}]*\}[^;{}]*)*);", re.S
)
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w.$]+)\s+)?([\w.:]+)\s*(.*)", re.S)
_WIDTHS = {"pred": 1} | {f"{k}{n}": n for k in "bus" for n in (8, 16, 32, 64)}
_WIDTHS |= {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "b128": 128}
_FLOATS: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_WARP = 32


class UnknownPtxError(Exception):
    """An instruction that the machine does not know."""


class OutsideError(Exception):
    """An access of memory that the launch was not given."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; names of registers and labels are unique in the kernel.

    Attributes:
        guard: the predicate, and whether it has to be false; None for none.
    """

    guard: tuple[str, bool] | None
    parts: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def type(self) -> str:
        """Its last type, which most instructions have one of."""
        return next(part for part in reversed(self.parts) if part in _WIDTHS)


class Program:
    """The instructions of a kernel's PTX.

    Attributes:
        code: in order.
        labels: label -> place in `code`.
        parameters: name -> number.
        shared: name of a shared variable -> its place; the last is the dynamic one.
    """

    def __init__(self, ptx: str) -> None:
        head, _, body = ptx.partition(".visible .entry")
        listed, _, body = body.partition("\n{")
        names = re.findall(r"\.param\s[^,\n]*?(\w+)(?:\[\d+\])?\s*(?:,|\n|\))", listed)
        self.parameters = {name: number for number, name in enumerate(names)}
        self.shared: dict[str, int] = {}
        self.static_bytes = 0
        for size, align, name in _shared_variables(head + body):
            place = -(-self.static_bytes // align) * align
            self.shared[name] = place
            self.static_bytes = place + size
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self._read(re.sub(r"//[^\n]*", "", body))

    def _read(self, text: str) -> None:
        text = re.sub(r"^\s*\.(loc|file|section|pragma)\b[^\n]*$", "", text, flags=re.M)
        scopes: list[dict[str, str]] = [{}]
        uses: list[tuple[int, list[dict[str, str]]]] = []
        at, count = 0, 0
        while (found := _STATEMENT.match(text, at)) is not None:
            at = found.end()
            label, brace, statement = found.groups()
            if label is not None:
                count += 1
                scopes[-1][label] = f"{label}@{count}"
                self.labels[scopes[-1][label]] = len(self.code)
            elif brace == "{":
                scopes.append({})
            elif brace == "}":
                if len(scopes) == 1:
                    break
                scopes.pop()
            elif statement.strip().startswith(".reg"):
                count += 1
                for name in re.findall(r"([%\w]+)(?:<\d+>)?(?=\s*[,]|\s*$)", statement):
                    if not name.startswith("%"):
                        scopes[-1][name] = f"{name}@{count}"
            elif statement.strip() and not statement.strip().startswith("."):
                uses.append((len(self.code), list(scopes)))
                self.code.append(_instruction(statement))
        for place, seen in uses:
            self.code[place] = _renamed(self.code[place], seen)


def _shared_variables(text: str) -> list[tuple[int, int, str]]:
    found = re.findall(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d*)\]", text)
    return [(int(size or 0), int(align), name) for align, name, size in found]


def _instruction(statement: str) -> Instruction:
    parsed = _INSTRUCTION.fullmatch(statement.strip())
    assert parsed is not None, statement
    negated, guard, opcode, rest = parsed.groups()
    parts = tuple(part for part in opcode.replace("::", "..").split(".") if part)
    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s|]+", rest)
    return Instruction(None if guard is None else (guard, bool(negated)), parts, tuple(operands))


def _renamed(one: Instruction, scopes: Sequence[Mapping[str, str]]) -> Instruction:
    def rename(found: re.Match[str]) -> str:
        for scope in reversed(scopes):
            if found[0] in scope:
                return scope[found[0]]
        return found[0]

    names = re.compile(r"(?<![%.\w])[$A-Za-z_][\w$]*")
    guard = None if one.guard is None else (names.sub(rename, one.guard[0]), one.guard[1])
    return Instruction(guard, one.parts, tuple(names.sub(rename, text) for text in one.operands))


class Memory:
    """Pieces of this process's memory that a kernel may access, by their addresses."""

    def __init__(self, pieces: Sequence[npt.NDArray[np.uint8]]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: int(piece.ctypes.data))
        self._starts = np.array([piece.ctypes.data for piece in self._pieces], np.uint64)

    def _places(self, addresses: Bits, size: int) -> list[tuple[Mask, npt.NDArray[np.uint8], Any]]:
        found = []
        piece_of = np.searchsorted(self._starts, addresses, "right").astype(np.int64) - 1
        for number in np.unique(piece_of).tolist():
            chosen = piece_of == number
            piece = self._pieces[number]
            offsets = (addresses[chosen] - self._starts[number]).astype(np.int64)
            if number < 0 or (offsets + size > len(piece)).any():
                raise OutsideError(f"{size} bytes at {int(addresses[chosen].max()):#x}")
            found.append((chosen, piece, offsets[:, None] + np.arange(size)))
        return found

    def load(self, addresses: Bits, size: int) -> npt.NDArray[np.uint8]:
        """Bytes (threads, size)."""
        out = np.zeros((len(addresses), size), np.uint8)
        for chosen, piece, places in self._places(addresses, size):
            out[chosen] = piece[places]
        return out

    def store(self, addresses: Bits, data: npt.NDArray[np.uint8]) -> None:
        """Write bytes (threads, size); of equal addresses the last thread's stay."""
        for chosen, piece, places in self._places(addresses, data.shape[1]):
            piece[places] = data[chosen]


def _mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def _signed(value: Bits, bits: int) -> npt.NDArray[np.int64]:
    shift = np.uint64(64 - bits)
    return (value << shift).view(np.int64) >> np.int64(64 - bits)


def _as_float(value: Bits, kind: str) -> Any:
    if kind == "bf16":
        return (value.astype(np.uint32) << 16).view(np.float32)
    kept: dict[str, Any] = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
    return value.astype(kept[kind]).view(_FLOATS[kind])


def _of_float(value: Any, kind: str) -> Bits:
    if kind == "bf16":
        bits = np.asarray(value, np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
        return np.where(np.isnan(value), np.uint64(0x7FFF), rounded)
    kept: dict[str, Any] = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
    return np.asarray(value, _FLOATS[kind]).view(kept[kind]).astype(np.uint64)


def _flushed(value: Any) -> Any:
    """With zeros of the same sign in the place of subnormal fp32 numbers."""
    return np.where(np.abs(value) < np.finfo(np.float32).tiny, np.copysign(0, value), value)


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
        if text in self._program.shared:
            return self._program.shared[text]
        if re.fullmatch(r"0[fd][0-9A-Fa-f]+", text):
            bits = int(text[2:], 16)
            return bits
        return int(text.removesuffix("U"), 0) & (1 << 64) - 1

    def _write(self, text: str, value: Any, kind: str) -> None:
        if text == "_":
            return
        bits = np.asarray(value).astype(np.uint64) & _mask(min(64, _WIDTHS[kind]))
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
        elif name in _INTEGER and not one.type.startswith(("f", "bf")):
            self._integer(one)
        elif name in _FLOAT:
            self._float(one)
        else:
            raise UnknownPtxError(".".join(one.parts))

    def _integer(self, one: Instruction) -> None:
        kind, bits = one.type, _WIDTHS[one.type]
        target, *operands = one.operands
        wide = f"b{2 * bits}" if "wide" in one.parts else kind
        # The third operand of a wide `mad` is as wide as its result.
        kinds = [kind, kind, wide]
        values = [
            self._read(text, one_kind) & _mask(_WIDTHS[one_kind])
            for text, one_kind in zip(operands, [*kinds, kind], strict=False)
        ]
        self._write(target, _INTEGER[one.parts[0]](one, bits, *values), wide)

    def _float(self, one: Instruction) -> None:
        kind = one.type
        target, *operands = one.operands
        if kind == "f16x2":
            halves = []
            for shift in (np.uint64(0), np.uint64(16)):
                parts = [self._read(t, kind) >> shift & np.uint64(0xFFFF) for t in operands]
                values = [_as_float(part, "f16") for part in parts]
                halves.append(_of_float(_FLOAT[one.parts[0]](one, *values), "f16") << shift)
            self._write(target, halves[0] | halves[1], kind)
            return
        values = [_as_float(self._read(text, kind), kind) for text in operands]
        if "sat" in one.parts:
            raise UnknownPtxError(".".join(one.parts))
        if "ftz" in one.parts:
            values = [_flushed(value) for value in values]
        result = _FLOAT[one.parts[0]](one, *values)
        result = _flushed(result) if "ftz" in one.parts else result
        self._write(target, _of_float(result, kind), kind)

    def _do_mov(self, one: Instruction) -> None:
        target, source = one.operands
        bits = _WIDTHS[one.type]
        if target.startswith("{"):
            names = _names(target)
            width = bits // len(names)
            value = self._read(source, one.type)
            for number, name in enumerate(names):
                self._write(name, value >> np.uint64(number * width), f"b{width}")
        elif source.startswith("{"):
            names = _names(source)
            width = bits // len(names)
            parts = [self._read(name, f"b{width}") & _mask(width) for name in names]
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
        kind, joined = one.type, one.parts[2] in _JOINS
        *targets, left, right = one.operands[:-1] if joined else one.operands
        x, y = (self._read(text, kind) for text in (left, right))
        found = _compared(one.parts[1], kind, x, y)
        for target, result in zip(targets, (found, ~found), strict=False):
            if joined:
                other = self._read(one.operands[-1], "pred") != 0
                result = _JOINS[one.parts[2]](result, other)
            self._write(target, result, "pred")

    def _do_cvt(self, one: Instruction) -> None:
        to, of = [part for part in one.parts if part in _WIDTHS]
        target, *sources = one.operands
        if len(sources) > 1 or "relu" in one.parts or "sat" in one.parts:
            raise UnknownPtxError(".".join(one.parts))
        value = self._read(sources[0], of)
        is_float = [kind.startswith(("f", "bf")) for kind in (to, of)]
        if not any(is_float):
            signed = of.startswith("s")
            wide = (
                _signed(value, _WIDTHS[of]).view(np.uint64)
                if signed
                else value & _mask(_WIDTHS[of])
            )
            self._write(target, wide, to)
        elif all(is_float):
            number = _as_float(value, of)
            for mode, rounded in (("rni", np.rint), ("rmi", np.floor), ("rpi", np.ceil)):
                number = rounded(number) if mode in one.parts else number
            number = np.trunc(number) if "rzi" in one.parts else number
            self._write(target, _of_float(number.astype(np.float64), to), to)
        elif is_float[0]:
            integer = (
                _signed(value, _WIDTHS[of]) if of.startswith("s") else value & _mask(_WIDTHS[of])
            )
            self._write(target, _of_float(integer.astype(_FLOATS.get(to, np.float32)), to), to)
        else:
            number = np.trunc(_as_float(value, of)).astype(np.float64)
            bits, signed = _WIDTHS[to], to.startswith("s")
            low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if signed else (0.0, 2.0**bits)
            number = np.where(np.isnan(number), 0, number)
            exact = [
                int(min(max(x, low), high - 1 if bits < 64 else high)) for x in number.tolist()
            ]
            top = (1 << bits - 1) - 1 if signed else (1 << bits) - 1
            kept = [min(x, top) & (1 << 64) - 1 for x in exact]
            self._write(target, np.array(kept, np.uint64), to)

    def _do_ld(self, one: Instruction) -> None:
        target, source = one.operands[:2]
        size = _WIDTHS[one.type] // 8
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
                value = _signed(value, size * 8).view(np.uint64)
            self._write(each, value, "b64")

    def _do_st(self, one: Instruction) -> None:
        target, source = one.operands[:2]
        size = _WIDTHS[one.type] // 8
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
            return _Shared(self._shared)
        if "global" not in one.parts:
            raise UnknownPtxError(".".join(one.parts))
        return self._memory

    def _do_atom(self, one: Instruction) -> None:
        target, place, *operands = one.operands
        bits, kind = _WIDTHS[one.type], one.type
        _, addresses = self._address(place)
        space, values = self._space(one), [self._read(text, kind) for text in operands]
        old = np.zeros(self._count, np.uint64)
        what = next(part for part in one.parts if part in _ATOMICS)
        for thread in np.flatnonzero(self._here).tolist():
            where = addresses[thread : thread + 1]
            had = int.from_bytes(space.load(where, bits // 8).tobytes(), "little")
            given = [int(value[thread]) & (1 << bits) - 1 for value in values]
            new = _ATOMICS[what](kind, bits, had, *given)
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
            _Shared(self._shared).store(to[thread : thread + 1], row)

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
        bits = _WIDTHS[one.type]
        warps = np.arange(self._count) // _WARP
        what = next(part for part in one.parts if part in _ATOMICS)
        out = np.zeros(self._count, np.uint64)
        for warp in np.unique(warps[self._here]).tolist():
            members = np.flatnonzero((warps == warp) & self._here).tolist()
            total = int(value[members[0]])
            for member in members[1:]:
                total = _ATOMICS[what](one.type, bits, total, int(value[member]))
            out[members] = total & (1 << bits) - 1
        self._write(target, out, one.type)

    def _do_match(self, one: Instruction) -> None:
        target, source, _ = one.operands
        value, warps = self._read(source, one.type), np.arange(self._count) // _WARP
        lanes = np.where(self._here, 2.0 ** (np.arange(self._count) % _WARP), 0)
        same = (value[:, None] == value) & (warps[:, None] == warps)
        self._write(target, same @ lanes, "b32")


class _Shared(Memory):
    """A block's shared memory, whose addresses begin at 0."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self._pieces = [data]
        self._starts = np.zeros(1, np.uint64)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.strip("{}").split(",")]


_JOINS: dict[str, Callable[[Mask, Mask], Mask]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def _compared(relation: str, kind: str, x: Bits, y: Bits) -> Mask:
    bits = _WIDTHS[kind]
    if kind.startswith(("f", "bf")):
        left, right = _as_float(x, kind), _as_float(y, kind)
        unordered = np.isnan(left) | np.isnan(right)
        if relation in ("num", "nan"):
            return unordered if relation == "nan" else ~unordered
        if relation.endswith("u"):
            return unordered | _RELATIONS[relation[:-1]](left, right)
        return ~unordered & _RELATIONS[relation](left, right)
    if kind.startswith("s"):
        return _RELATIONS[relation](_signed(x, bits), _signed(y, bits))
    relation = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(relation, relation)
    return _RELATIONS[relation](x & _mask(bits), y & _mask(bits))


_RELATIONS: dict[str, Callable[[Any, Any], Mask]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _add(one: Instruction, bits: int, x: Bits, y: Bits) -> Bits:
    return x + y


def _times(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    if "wide" not in one.parts and "hi" not in one.parts:
        return x * y
    left, right = x, y
    if one.type.startswith("s"):
        left, right = (_signed(value, bits).view(np.uint64) for value in (x, y))
    if "wide" in one.parts:
        return left * right
    pairs = zip(*(_numbers(one, bits, value) for value in (x, y)), strict=True)
    return np.array([(a * b >> bits) & (1 << 64) - 1 for a, b in pairs], np.uint64)


def _numbers(one: Instruction, bits: int, value: Bits) -> list[int]:
    found = _signed(value, bits) if one.type.startswith("s") else value
    return [int(each) for each in found.tolist()]


def _divided(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    out = []
    for a, b in zip(_numbers(one, bits, x), _numbers(one, bits, y), strict=True):
        quotient = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        out.append((quotient if one.parts[0] == "div" else a - quotient * b) & (1 << 64) - 1)
    return np.array(out, np.uint64)


def _least(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    pick = np.minimum if one.parts[0] == "min" else np.maximum
    if one.type.startswith("s"):
        return pick(_signed(x, bits), _signed(y, bits)).view(np.uint64)
    return pick(x, y)


def _shifted_left(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    by = y & _mask(32)
    return np.where(by < np.uint64(bits), x << np.minimum(by, np.uint64(63)), 0)


def _shifted_right(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    by = np.minimum(y & _mask(32), np.uint64(bits))
    if one.type.startswith("s"):
        return (_signed(x, bits) >> np.minimum(by, np.uint64(63)).view(np.int64)).view(np.uint64)
    return np.where(by < np.uint64(bits), x >> np.minimum(by, np.uint64(63)), 0)


def _each(compute: Callable[..., int]) -> Callable[..., Any]:
    def all_of(one: Instruction, bits: int, *values: Bits) -> Any:
        rows = zip(*(value.tolist() for value in values), strict=True)
        return np.array([compute(bits, *row) & (1 << 64) - 1 for row in rows], np.uint64)

    return all_of


def _permuted(bits: int, low: int, high: int, selector: int) -> int:
    data = (high << 32 | low).to_bytes(8, "little")
    out = 0
    for number in range(4):
        nibble = selector >> 4 * number & 15
        byte = data[nibble & 7]
        out |= ((0xFF if byte >> 7 else 0) if nibble & 8 else byte) << 8 * number
    return out


def _logic(bits: int, a: int, b: int, c: int, table: int) -> int:
    out = 0
    for row in range(8):
        if table >> row & 1:
            x = a if row & 4 else ~a
            out |= x & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out & (1 << bits) - 1


_INTEGER: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": lambda one, bits, x, y: x - y,
    "mul": _times,
    "mad": lambda one, bits, x, y, z: _times(one, bits, x, y) + z,
    "div": _divided,
    "rem": _divided,
    "min": _least,
    "max": _least,
    "and": lambda one, bits, x, y: x & y,
    "or": lambda one, bits, x, y: x | y,
    "xor": lambda one, bits, x, y: x ^ y,
    "not": lambda one, bits, x: ~x,
    "neg": lambda one, bits, x: np.uint64(0) - x,
    "abs": lambda one, bits, x: np.abs(_signed(x, bits)).view(np.uint64),
    "shl": _shifted_left,
    "shr": _shifted_right,
    "popc": _each(lambda bits, x: x.bit_count()),
    "clz": _each(lambda bits, x: bits - x.bit_length()),
    "brev": _each(lambda bits, x: int(f"{x:0{bits}b}"[::-1], 2)),
    "bfind": _each(lambda bits, x: x.bit_length() - 1),
    "bmsk": _each(lambda bits, at, count: ((1 << min(count, 32)) - 1) << min(at, 32)),
    "bfe": _each(lambda bits, x, at, count: x >> (at & 255) & (1 << (count & 255)) - 1),
    "prmt": _each(_permuted),
    "lop3": _each(_logic),
}


def _extreme(one: Instruction, x: Any, y: Any) -> Any:
    if "NaN" in one.parts:
        return (np.minimum if one.parts[0] == "min" else np.maximum)(x, y)
    return (np.fmin if one.parts[0] == "min" else np.fmax)(x, y)


_FLOAT: dict[str, Callable[..., Any]] = {
    "add": lambda one, x, y: x + y,
    "sub": lambda one, x, y: x - y,
    "mul": lambda one, x, y: x * y,
    "div": lambda one, x, y: x / y,
    "fma": lambda one, x, y, z: x.astype(np.float64) * y + z,
    "min": _extreme,
    "max": _extreme,
    "neg": lambda one, x: -x,
    "abs": lambda one, x: np.abs(x),
    "sqrt": lambda one, x: np.sqrt(x),
    "rcp": lambda one, x: 1 / x,
    "rsqrt": lambda one, x: 1 / np.sqrt(x),
    "ex2": lambda one, x: np.exp2(x),
    "lg2": lambda one, x: np.log2(x),
}


def _sum(kind: str, bits: int, old: int, given: int) -> int:
    if not kind.startswith(("f", "bf")):
        return old + given
    x, y = (_as_float(np.array([value], np.uint64), kind) for value in (old, given))
    return int(_of_float(x + y, kind)[0])


def _extremes(pick: Callable[[int, int], int]) -> Callable[..., int]:
    def chosen(kind: str, bits: int, old: int, given: int) -> int:
        if kind.startswith("s"):
            signed = [value - (value >> bits - 1 << bits) for value in (old, given)]
            return pick(*signed)
        return pick(old, given)

    return chosen


_ATOMICS: dict[str, Callable[..., int]] = {
    "add": _sum,
    "min": _extremes(min),
    "max": _extremes(max),
    "and": lambda kind, bits, old, given: old & given,
    "or": lambda kind, bits, old, given: old | given,
    "xor": lambda kind, bits, old, given: old ^ given,
    "exch": lambda kind, bits, old, given: given,
    "cas": lambda kind, bits, old, compare, given: given if old == compare else old,
}
