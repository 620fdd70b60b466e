"""Stages: the IR of a kernel that a debugger runs, as people write it.

`tile-ir` is the front end's, before any pass; `tile-ir:PASS` and `gpu-ir:PASS` are the IR after a
pass, `gpu-ir:PASS:2` after its second run, `gpu-ir` the IR that is lowered. `tkdebug passes` has
the same names, with " after " for the colon.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.errors import UsageError

TILE, GPU = "tile-ir", "gpu-ir"


@dataclass(frozen=True, slots=True)
class Stage:
    """An IR of a kernel.

    Attributes:
        ir: "tile-ir" or "gpu-ir".
        pass_name: the pass that made it; "" for the first Tile IR, and for the last GPU IR.
        run: the run of that pass, 1 for the first.
    """

    ir: str = TILE
    pass_name: str = ""
    run: int = 1

    def __str__(self) -> str:
        run = f":{self.run}" if self.run > 1 else ""
        return f"{self.ir}:{self.pass_name}{run}" if self.pass_name else self.ir

    @property
    def is_front_end(self) -> bool:
        """Whether no pass has run."""
        return self.ir == TILE and not self.pass_name

    @property
    def is_gpu(self) -> bool:
        """Whether it is GPU IR."""
        return self.ir == GPU


FRONT_END = Stage()


def parse_stage(text: str, tile: Sequence[str], gpu: Sequence[str]) -> Stage:
    """The stage that a text names.

    Args:
        text: the user's text.
        tile: the passes over Tile IR, in order.
        gpu: the passes from there to GPU IR.

    Raises:
        UsageError: there is no stage of that name; the message offers the nearest.
    """
    ir, *rest = [part.strip() for part in text.strip().replace(" after ", ":").split(":")]
    if ir not in (TILE, GPU):
        near = difflib.get_close_matches(text.strip(), all_stages(tile, gpu), n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"stage {text}: expected {TILE}, {GPU}, or one of them:PASS{hint}")
    if not rest or rest == [""]:
        return Stage(ir)
    passes = tile if ir == TILE else gpu
    name, *number = rest
    runs = passes.count(name)
    if not runs:
        raise UsageError(f"stage {text}: {_no_pass(ir, name, tile, gpu)}")
    if not number:
        return Stage(ir, name)
    if len(number) > 1 or not number[0].isdigit() or not 1 <= int(number[0]) <= runs:
        times = "once" if runs == 1 else f"{runs} times"
        raise UsageError(f"stage {text}: {name} runs {times}; got run {':'.join(number)}")
    return Stage(ir, name, int(number[0]))


def all_stages(tile: Sequence[str], gpu: Sequence[str]) -> list[str]:
    """All stages of these passes, in order."""
    found = [TILE]
    for ir, passes in ((TILE, tile), (GPU, gpu)):
        seen: dict[str, int] = {}
        for name in passes:
            seen[name] = seen.get(name, 0) + 1
            found.append(str(Stage(ir, name, seen[name])))
    return [*found, GPU]


def _no_pass(ir: str, name: str, tile: Sequence[str], gpu: Sequence[str]) -> str:
    passes, others = (tile, gpu) if ir == TILE else (gpu, tile)
    if name in others:
        other = GPU if ir == TILE else TILE
        return f"{name} is no pass of {ir}; did you mean {other}:{name}?"
    near = difflib.get_close_matches(name, [*passes, *others], n=1, cutoff=0.4)
    if not near:
        return f"there is no pass {name}; `stage` lists them"
    owner = ir if near[0] in passes else (GPU if ir == TILE else TILE)
    return f"there is no pass {name}; did you mean {owner}:{near[0]}?"
