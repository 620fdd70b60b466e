"""Runs the LLVM IR that lowering writes, for all threads of a block at once, on numpy.

Knows the instructions, intrinsics and inline PTX that the tests use, and refuses others by name.
A value is one numpy array with an entry per thread; control flow runs the textually first block
that some thread waits for, so that threads meet again after a branch. Cross-lane instructions
check that whole warps run them, and barriers that the whole block does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import numpy as np
from simulated_instructions import BINARY, CALLS, COMPARE, SIGNED
from simulated_ptx import ASM_RULES
from simulated_tma import Barrier, SimulatedMap

INTS = {"i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64}
FLOATS = {"half": np.float16, "float": np.float32, "double": np.float64, "bfloat": np.float32}
TYPE = r"(?:\{[^}]*\}|<\d+ x [^>]+>|ptr(?: addrspace\(\d\))?|[a-z]+\d*)"
Value = np.ndarray | list[np.ndarray]


def to_bfloat(x: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16, kept as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return (
        np.where(np.isnan(x), bits | np.uint32(0x400000), rounded)
        .astype(np.uint32)
        .view(np.float32)
    )


def array_type(type_: str) -> np.dtype:
    if type_.startswith("ptr"):
        return np.dtype(np.uint64)
    return np.dtype(INTS.get(type_) or FLOATS[type_])


def size_bytes(type_: str) -> int:
    if type_ == "bfloat":
        return 2
    return array_type(type_).itemsize


class Simulator:
    """One block of threads.

    Args:
        module: LLVM IR text with one kernel.
        parameters: an array with an entry per thread for each parameter.
        threads: threads of the block.
        global_bytes: what addrspace(1) holds; addresses are offsets in it.
    """

    def __init__(
        self,
        module: str,
        parameters: Sequence[np.ndarray],
        threads: int,
        shared_bytes: int,
        global_bytes: bytes = b"",
    ) -> None:
        self.threads = threads
        # What nobody wrote is garbage, not zero.
        self.shared = np.full(shared_bytes, 0xAB, np.uint8)
        self.memory = np.frombuffer(global_bytes, np.uint8).copy()
        self.values: dict[str, Value] = {f"%arg{i}": p for i, p in enumerate(parameters)}
        self.values["@shared"] = np.zeros(threads, np.uint64)
        self.blocks = self._parse(module)
        self.order = {name: i for i, name in enumerate(self.blocks)}
        # Asynchronous copies not yet in a group, and the groups on their way.
        self.copies: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.groups: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = []
        # Bulk copies: what tensor maps describe, mbarriers by address, copies on their way to them.
        self.tensor_maps: list[SimulatedMap] = []
        self.barriers: dict[int, Barrier] = {}
        self.bulk_copies: list[tuple[int, int, np.ndarray]] = []
        # Whether all bulk stores are in a group.
        self.is_committed = True
        # Shared bytes written since the last barrier, and by which warp.
        self.written_by = np.full(shared_bytes, -1)
        self.read_by = np.full(shared_bytes, -1)

    @staticmethod
    def _parse(module: str) -> dict[str, list[str]]:
        body = re.search(r"^define [^\n]*\{\n(.*?)^\}", module, re.S | re.M)
        assert body is not None
        blocks: dict[str, list[str]] = {}
        for line in body.group(1).splitlines():
            line = re.sub(r", !dbg !\d+$", "", line.strip())
            if line.endswith(":"):
                blocks[line[:-1]] = current = []
            elif line:
                current.append(line)
        return blocks

    # Running

    def run(self) -> None:
        waiting = np.zeros(self.threads, np.int64)
        self.came_from = np.full(self.threads, -1)
        names = list(self.blocks)
        done = len(names)
        while (waiting < done).any():
            number = int(waiting.min())
            self.mask = waiting == number
            following = self._run_block(self.blocks[names[number]])
            self.came_from = np.where(self.mask, number, self.came_from)
            waiting = np.where(self.mask, following, waiting)

    def _run_block(self, lines: Sequence[str]) -> np.ndarray:
        phis = []
        for line in lines:
            if " = phi " in line:
                phis.append((line.split(" = ")[0], self._phi(line)))
                continue
            for name, value in phis:
                self._set(name, value)
            phis = []
            if line.startswith("br label"):
                return np.full(self.threads, self.order[line.split("%")[1]])
            if line.startswith("br i1"):
                condition, then, otherwise = re.match(
                    r"br i1 (\S+), label %(\S+), label %(\S+)", line
                ).groups()
                return np.where(self.get("i1", condition), self.order[then], self.order[otherwise])
            if line.startswith("ret"):
                return np.full(self.threads, len(self.blocks))
            self._instruction(line)
        raise AssertionError("block without terminator")

    def _phi(self, line: str) -> np.ndarray:
        type_ = re.match(rf"\S+ = phi ({TYPE})", line).group(1)
        total = np.zeros(self.threads, array_type(type_))
        for value, block in re.findall(r"\[ (\S+), %(\S+) \]", line):
            here = self.came_from == self.order[block]
            if (here & self.mask).any():
                total = np.where(here, self.get(type_, value), total)
        return total

    def _set(self, name: str, value: Value) -> None:
        if isinstance(value, list):
            self.values[name] = value
            return
        old = self.values.get(name)
        if old is None or self.mask.all():
            self.values[name] = value
        else:
            self.values[name] = np.where(self.mask, value, old)

    def get(self, type_: str, text: str) -> Value:
        if text in self.values:
            return self.values[text]
        if text in ("poison", "undef", "zeroinitializer") and type_.startswith("<"):
            count, element = re.match(r"<(\d+) x (.*)>", type_).groups()
            return [np.zeros(self.threads, array_type(element)) for _ in range(int(count))]
        return np.full(self.threads, self._constant(type_, text))

    def _constant(self, type_: str, text: str) -> object:
        kind = array_type(type_)
        if text in ("true", "false"):
            return kind.type(text == "true")
        if text in ("null", "poison", "undef", "zeroinitializer"):
            return kind.type(0)
        if text.startswith("0xH"):
            return np.uint16(int(text[3:], 16)).view(np.float16)
        if text.startswith("0xR"):
            return np.uint32(int(text[3:], 16) << 16).view(np.float32)
        if text.startswith("0x"):
            return kind.type(struct.unpack("<d", struct.pack("<Q", int(text[2:], 16)))[0])
        if type_ in FLOATS:
            return kind.type(float(text))
        return kind.type(int(text) & ((1 << 8 * kind.itemsize) - 1))

    # Instructions

    def _instruction(self, line: str) -> None:
        name, text = line.split(" = ", 1) if re.match(r"%\S+ = ", line) else (None, line)
        with np.errstate(all="ignore"):
            value = self._evaluate(text)
        if name is not None:
            self._set(name, value)

    def _evaluate(self, text: str) -> Value | None:
        word = text.split(" ", 1)[0]
        rule = getattr(self, f"_do_{word}", None)
        if rule is not None:
            return rule(text)
        m = re.match(
            rf"(\w+(?: disjoint| contract| exact| nuw| nsw)*) ({TYPE}) (\S+), (\S+)$", text
        )
        if m is not None and m.group(1).split()[0] in BINARY:
            op, type_, a, b = m.groups()
            x, y = self.get(type_, a), self.get(type_, b)
            made = BINARY[op.split()[0]](x, y)
            return to_bfloat(made) if type_ == "bfloat" else made.astype(array_type(type_))
        m = re.match(rf"(\w+) ({TYPE}) (\S+) to ({TYPE})$", text)
        if m is not None:
            return self._cast(*m.groups())
        raise AssertionError(f"the simulator does not know: {text}")

    def _cast(self, op: str, source: str, a: str, target: str) -> Value:
        x = self.get(source, a)
        if "<" in source or "<" in target:
            return self._bitcast_vector(x, source, target)
        kind = array_type(target)
        if op == "bitcast":
            if source == "bfloat":
                return (x.view(np.uint32) >> 16).astype(np.uint16)
            if target == "bfloat":
                return (x.astype(np.uint32) << 16).view(np.float32)
            return x.view(kind)
        if op in ("zext", "trunc", "inttoptr", "ptrtoint"):
            if target == "i1":
                return (x & x.dtype.type(1)).astype(bool)
            return x.astype(kind)
        if op == "sext":
            if source == "i1":
                return np.where(x, kind.type(2 ** (8 * kind.itemsize) - 1), kind.type(0))
            return x.view(SIGNED[x.dtype]).astype(SIGNED[kind]).view(kind)
        if op in ("fpext", "fptrunc"):
            return to_bfloat(x) if target == "bfloat" else x.astype(kind)
        if op == "sitofp":
            made = x.view(SIGNED[x.dtype]).astype(kind)
        elif op == "uitofp":
            made = x.astype(kind)
        elif op == "fptosi":
            return x.astype(SIGNED[kind]).view(kind)
        else:
            raise AssertionError(f"the simulator does not know: {op}")
        return to_bfloat(made) if target == "bfloat" else made

    def _bitcast_vector(self, x: Value, source: str, target: str) -> Value:
        parts = x if isinstance(x, list) else [x]
        raw = []
        for part in parts:
            if "bfloat" in source:
                part = (part.view(np.uint32) >> 16).astype(np.uint16)
            raw.append(part.view(np.uint8).reshape(self.threads, -1))
        data = np.concatenate(raw, axis=1)
        m = re.match(r"<(\d+) x (.*)>", target)
        element = m.group(2) if m else target
        count = int(m.group(1)) if m else 1
        width = size_bytes(element)
        made = []
        for i in range(count):
            piece = np.ascontiguousarray(data[:, i * width : (i + 1) * width])
            made.append(self._decode(piece, element))
        return made if m else made[0]

    @staticmethod
    def _decode(raw: np.ndarray, type_: str) -> np.ndarray:
        if type_ == "bfloat":
            return (raw.view(np.uint16)[:, 0].astype(np.uint32) << 16).view(np.float32)
        if type_ == "i1":
            return raw[:, 0].astype(bool)
        return raw.view(array_type(type_))[:, 0]

    @staticmethod
    def _encode(x: np.ndarray, type_: str) -> np.ndarray:
        if type_ == "bfloat":
            x = (x.view(np.uint32) >> 16).astype(np.uint16)
        return np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1)

    def _do_icmp(self, text: str) -> np.ndarray:
        predicate, type_, a, b = re.match(rf"icmp (\w+) ({TYPE}) (\S+), (\S+)", text).groups()
        x, y = self.get(type_, a), self.get(type_, b)
        if predicate[0] == "s":
            x, y = x.view(SIGNED[x.dtype]), y.view(SIGNED[y.dtype])
        return COMPARE[predicate[-2:]](x, y)

    def _do_fcmp(self, text: str) -> np.ndarray:
        predicate, type_, a, b = re.match(rf"fcmp (\w+) ({TYPE}) (\S+), (\S+)", text).groups()
        x, y = self.get(type_, a), self.get(type_, b)
        unordered = np.isnan(x) | np.isnan(y)
        if predicate in ("uno", "ord"):
            return unordered if predicate == "uno" else ~unordered
        found = COMPARE[predicate[1:]](x, y)
        return found | unordered if predicate[0] == "u" else found & ~unordered

    def _do_select(self, text: str) -> np.ndarray:
        c, type_, a, b = re.match(rf"select i1 (\S+), ({TYPE}) (\S+), {TYPE} (\S+)", text).groups()
        return np.where(self.get("i1", c), self.get(type_, a), self.get(type_, b))

    def _do_fneg(self, text: str) -> np.ndarray:
        type_, a = re.match(rf"fneg ({TYPE}) (\S+)", text).groups()
        return -self.get(type_, a)

    def _do_getelementptr(self, text: str) -> np.ndarray:
        element, pointer, a, index_type, index = re.match(
            rf"getelementptr (?:inbounds )?({TYPE}), ({TYPE}) (\S+), ({TYPE}) (\S+)", text
        ).groups()
        at = self.get(index_type, index)
        moved = at.view(SIGNED[at.dtype]).astype(np.int64) * size_bytes(element)
        return self.get(pointer, a) + moved.view(np.uint64)

    def _do_load(self, text: str) -> Value:
        type_, space, a, align = re.match(
            rf"load (?:volatile )?({TYPE}), ptr addrspace\((\d)\) (\S+), align (\d+)", text
        ).groups()
        m = re.match(r"<(\d+) x (.*)>", type_)
        count, element = (int(m.group(1)), m.group(2)) if m else (1, type_)
        raw = self.read(space, self.get("ptr", a), count * size_bytes(element), int(align))
        width = size_bytes(element)
        made = [
            self._decode(np.ascontiguousarray(raw[:, i * width : (i + 1) * width]), element)
            for i in range(count)
        ]
        return made if m else made[0]

    def _do_store(self, text: str) -> None:
        type_, value, space, a, align = re.match(
            rf"store ({TYPE}) (\S+), ptr addrspace\((\d)\) (\S+), align (\d+)", text
        ).groups()
        m = re.match(r"<(\d+) x (.*)>", type_)
        element = m.group(2) if m else type_
        x = self.get(type_, value)
        raw = np.concatenate(
            [self._encode(p, element) for p in (x if isinstance(x, list) else [x])], axis=1
        )
        self.write(space, self.get("ptr", a), raw, int(align))

    def read(self, space: str, addresses: np.ndarray, size: int, align: int) -> np.ndarray:
        """Bytes (threads, size) at each active thread's address."""
        memory = self.shared if space == "3" else self.memory
        at = np.where(self.mask, addresses.astype(np.int64), 0)
        assert (at % align == 0).all(), f"misaligned read of {align} bytes"
        places = at[:, None] + np.arange(size)
        assert (places[self.mask] < len(memory)).all(), "read beyond memory"
        places = np.minimum(places, max(0, len(memory) - 1))
        if space == "3":
            warps = np.arange(self.threads)[:, None] // 32
            others = (self.written_by[places] >= 0) & (self.written_by[places] != warps)
            assert not others[self.mask].any(), "shared memory read without a barrier"
            mine = places[self.mask]
            self.read_by[mine] = np.broadcast_to(warps, places.shape)[self.mask]
        return memory[places]

    def write(self, space: str, addresses: np.ndarray, raw: np.ndarray, align: int) -> None:
        """Write bytes (threads, size) at each active thread's address."""
        memory = self.shared if space == "3" else self.memory
        at = addresses.astype(np.int64)[self.mask]
        assert (at % align == 0).all(), f"misaligned write of {align} bytes"
        places = at[:, None] + np.arange(raw.shape[1])
        assert (places < len(memory)).all(), "write beyond memory"
        memory[places] = raw[self.mask]
        if space == "3":
            warps = (np.arange(self.threads) // 32)[self.mask]
            read = self.read_by[places]
            assert not ((read >= 0) & (read != warps[:, None])).any(), (
                "shared memory overwritten without a barrier"
            )
            self.written_by[places] = np.broadcast_to(warps[:, None], places.shape)

    def _do_insertelement(self, text: str) -> list[np.ndarray]:
        type_, whole, element, value, index = re.match(
            rf"insertelement ({TYPE}) (\S+), ({TYPE}) (\S+), i32 (\d+)", text
        ).groups()
        made = list(self.get(type_, whole))
        made[int(index)] = self.get(element, value)
        return made

    def _do_extractelement(self, text: str) -> np.ndarray:
        type_, whole, index = re.match(rf"extractelement ({TYPE}) (\S+), i32 (\d+)", text).groups()
        return self.get(type_, whole)[int(index)]

    def _do_extractvalue(self, text: str) -> np.ndarray:
        whole, index = re.match(r"extractvalue \{.*\} (\S+), (\d+)", text).groups()
        return self.values[whole][int(index)]

    # Calls

    def _do_call(self, text: str) -> Value | None:
        m = re.match(
            rf'call ({TYPE}) asm (?:sideeffect )?"(.*)", "([^"]*)"\((.*)\)(?: #\d)?$', text
        )
        if m is not None:
            return self._asm(*m.groups())
        _, name, arguments = re.match(rf"call ({TYPE}) @([\w.]+)\((.*)\)$", text).groups()
        values = self._arguments(arguments)
        if name.startswith("llvm.nvvm.read.ptx.sreg.tid.x"):
            return np.arange(self.threads, dtype=np.uint32)
        if name.startswith("llvm.nvvm.read.ptx.sreg"):
            return np.zeros(self.threads, np.uint32)
        if name.startswith("llvm.nvvm.shfl.sync."):
            return self._shuffle(name.split(".")[4], *values[1:3])
        if name.startswith("llvm.nvvm.redux.sync."):
            return self._redux(name.split(".")[-1], values[0])
        if name.startswith("llvm.nvvm.ldmatrix."):
            return self._ldmatrix(int(name.split(".x")[1][0]), ".trans." in name, values[0])
        if name.startswith("llvm.nvvm.stmatrix."):
            return self._stmatrix(".trans." in name, *values)
        if name == "llvm.nvvm.barrier.cta.sync.aligned.all":
            return self.barrier()
        stem = name.split(".")[1]
        if stem in CALLS:
            return CALLS[stem](*values)
        raise AssertionError(f"the simulator does not know: {name}")

    def _arguments(self, text: str) -> list[Value]:
        return [self.get(t, v) for t, v in re.findall(rf"({TYPE}) ([^\s,]+)(?:, |$)", text)]

    def barrier(self) -> None:
        assert self.mask.all(), "barrier that not all threads reach"
        self.written_by[:] = -1
        self.read_by[:] = -1

    def whole_warps(self) -> None:
        warps = self.mask.reshape(-1, 32)
        assert (warps.all(1) | ~warps.any(1)).all(), "cross-lane instruction by part of a warp"

    def _shuffle(self, kind: str, value: np.ndarray, lane: np.ndarray) -> np.ndarray:
        self.whole_warps()
        thread = np.arange(self.threads)
        own, base, other = thread % 32, thread // 32 * 32, lane.astype(np.int64)
        if kind == "bfly":
            source = own ^ other
        elif kind == "idx":
            source = other % 32
        else:
            source = np.where(own >= other, own - other, own)
        return value[base + source]

    def _ldmatrix(self, count: int, transposed: bool, addresses: np.ndarray) -> Value:
        """PTX ISA, "ldmatrix": lane 8 m + r names row r of matrix m; lane l gets word l % 4 of row
        l / 4, or with .trans the elements (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4).
        """
        self.whole_warps()
        named = self.read("3", addresses, 16, 16).reshape(-1, 32, 16)
        words = []
        for matrix in range(count):
            rows = np.ascontiguousarray(named[:, 8 * matrix : 8 * matrix + 8]).view(np.uint16)
            if transposed:
                rows = np.ascontiguousarray(rows.transpose(0, 2, 1))
            words.append(rows.view(np.uint32).reshape(-1))
        return words if count > 1 else words[0]

    def _stmatrix(self, transposed: bool, addresses: np.ndarray, *words: np.ndarray) -> None:
        """PTX ISA, "stmatrix": what ldmatrix would hand out so is stored."""
        self.whole_warps()
        mask = self.mask
        lane = np.arange(self.threads) % 32
        for matrix, word in enumerate(words):
            rows = np.ascontiguousarray(word.reshape(-1, 32).astype(np.uint32)).view(np.uint16)
            rows = rows.reshape(-1, 8, 8)
            if transposed:
                rows = np.ascontiguousarray(rows.transpose(0, 2, 1))
            raw = np.tile(rows.view(np.uint8), (1, 4, 1)).reshape(-1, 16)
            self.mask = mask & (lane // 8 == matrix)
            self.write("3", addresses, raw, 16)
        self.mask = mask

    def _redux(self, kind: str, value: np.ndarray) -> np.ndarray:
        self.whole_warps()
        rows = value.reshape(-1, 32)
        signed = rows.view(np.int32)
        made = {
            "add": lambda: rows.sum(1, dtype=np.uint32),
            "and": lambda: np.bitwise_and.reduce(rows, 1),
            "or": lambda: np.bitwise_or.reduce(rows, 1),
            "xor": lambda: np.bitwise_xor.reduce(rows, 1),
            "umin": lambda: rows.min(1),
            "umax": lambda: rows.max(1),
            "min": lambda: signed.min(1).view(np.uint32),
            "max": lambda: signed.max(1).view(np.uint32),
        }[kind]()
        return np.repeat(made, 32)

    def _asm(self, type_: str, template: str, constraints: str, arguments: str) -> Value | None:
        template = template.replace("\\0A", "\n").replace("\\22", '"')
        if template.startswith("bar.warp.sync"):
            return self.barrier()
        for pattern, rule in ASM_RULES:
            m = pattern.search(template)
            if m is not None:
                return rule(self, m, self._arguments(arguments))
        raise AssertionError(f"the simulator does not know: {template}")
