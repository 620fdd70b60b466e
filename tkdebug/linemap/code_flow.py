"""The loops of machine code: the instructions that a warp executes, in order, and their loops.

Responsible for the structure alone: the number of a loop's iterations is not in the code. Jumps
that are computed at run time are taken to go on with the next instruction.

Invariant: each instruction that can be reached is once in the nest, after the instructions that
lead to it, jumps back left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tkdebug.linemap.line_table import Instruction

_ENDS = ("EXIT", "RET")
_BRANCH = "BRA"


@dataclass(frozen=True, slots=True, eq=False)
class CodeLoop:
    """A loop: its contents in order, instructions by their index and inner loops."""

    body: Nest

    def own(self) -> Iterator[int]:
        """The instructions that are in no inner loop."""
        return (item for item in self.body if isinstance(item, int))

    def all(self) -> Iterator[int]:
        """The instructions, with those of inner loops."""
        return indices_of(self.body)


Nest = tuple["int | CodeLoop", ...]


def indices_of(nest: Nest) -> Iterator[int]:
    """The instructions of a nest, in order."""
    for item in nest:
        if isinstance(item, int):
            yield item
        else:
            yield from indices_of(item.body)


def nest_of(code: Sequence[Instruction], start: int = 0) -> Nest:
    """The loops of the code that is entered at the instruction of index `start`."""
    if not code:
        return ()
    blocks = _Blocks(code, start)
    order = _reverse_postorder(blocks.successors, start)
    loops = _natural_loops(blocks.successors, order)
    return tuple(_nested(blocks, order, loops, frozenset(order)))


class _Blocks:
    """Basic blocks by the index of their first instruction."""

    def __init__(self, code: Sequence[Instruction], start: int) -> None:
        self._code = code
        self._index = {instruction.address: at for at, instruction in enumerate(code)}
        leaders = {start}
        for at, instruction in enumerate(code):
            if _ends_block(instruction):
                leaders.add(at + 1)
            target = self._jump(instruction)
            if target is not None:
                leaders.add(target)
        self._leaders = sorted(at for at in leaders if at < len(code))
        self._ends = dict(zip(self._leaders, [*self._leaders[1:], len(code)], strict=True))
        self.successors = {leader: tuple(self._after(leader)) for leader in self._leaders}

    def instructions(self, leader: int) -> range:
        """The instructions of a block."""
        return range(leader, self._ends[leader])

    def _jump(self, instruction: Instruction) -> int | None:
        if instruction.opcode != _BRANCH or instruction.target is None:
            return None
        return self._index.get(instruction.target)

    def _after(self, leader: int) -> Iterator[int]:
        end = self._ends[leader]
        last = self._code[end - 1]
        target = self._jump(last)
        # An unconditional branch never falls through, and one that tests for divergent lanes seldom
        # does; a branch with a predicate may.
        if end < len(self._code) and (_is_choice(last) or not _ends_block(last)):
            yield end
        if target is not None:
            yield target


def _ends_block(instruction: Instruction) -> bool:
    return instruction.opcode == _BRANCH or instruction.opcode in _ENDS


def _is_choice(instruction: Instruction) -> bool:
    """Whether an instruction may be skipped: it has a guard, or is a BRA with a predicate."""
    text = instruction.text
    if text.startswith("@"):
        return True
    return instruction.opcode == _BRANCH and len(text.partition("`")[0].split()) > 1


def _reverse_postorder(successors: Mapping[int, Sequence[int]], start: int) -> list[int]:
    order: list[int] = []
    seen = {start}
    stack = [(start, iter(successors[start]))]
    while stack:
        block, rest = stack[-1]
        following = next((one for one in rest if one not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors[following])))
    return order[::-1]


def _natural_loops(
    successors: Mapping[int, Sequence[int]], order: Sequence[int]
) -> dict[int, frozenset[int]]:
    """Return the blocks of each loop, by the block where it begins."""
    place = {block: at for at, block in enumerate(order)}
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for following in successors[block]:
            before[following].append(block)
    dominators = _immediate_dominators(order, place, before)
    loops: dict[int, set[int]] = {}
    for block in order:
        for head in successors[block]:
            if _dominates(dominators, head, block):
                loops.setdefault(head, {head}).update(_reaching(block, head, before))
    return {head: frozenset(members) for head, members in loops.items()}


def _immediate_dominators(
    order: Sequence[int], place: Mapping[int, int], before: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Return the immediate dominator of each block; the entry has itself.

    Source: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
    """
    found = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [one for one in before[block] if one in found]
            best = known[0]
            for other in known[1:]:
                while best != other:
                    if place[best] > place[other]:
                        best = found[best]
                    else:
                        other = found[other]
            if found.get(block) != best:
                found[block] = best
                changed = True
    return found


def _dominates(dominators: Mapping[int, int], head: int, block: int) -> bool:
    while block != head and dominators[block] != block:
        block = dominators[block]
    return block == head


def _reaching(block: int, head: int, before: Mapping[int, Sequence[int]]) -> set[int]:
    """The blocks that reach `block` without passing `head`, with `block` and `head` themselves."""
    found = {head}
    waiting = [block]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += before[one]
    return found


def _nested(
    blocks: _Blocks,
    order: Sequence[int],
    loops: Mapping[int, frozenset[int]],
    members: frozenset[int],
    inside: int | None = None,
) -> Iterator[int | CodeLoop]:
    """Yield the loop nest of the blocks in `members`; `inside` is the head of their loop."""
    done: set[int] = set()
    for block in order:
        if block not in members or block in done:
            continue
        if block in loops and block != inside:
            body = loops[block] & members
            done |= body
            yield CodeLoop(tuple(_nested(blocks, order, loops, body, block)))
        else:
            yield from blocks.instructions(block)
