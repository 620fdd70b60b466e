"""One of the processes of the overhead benchmark: runs the programs on a GPU, watched in one way.

Started by `bench/overhead.py`: reads the names of programs from stdin, a line each, and writes the
seconds that they took to the file descriptor it is given.

    overhead_worker.py --watch triton|proton|bare|hook|hooks|events|alone|cupti --answers FD
        --folder PATH
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

WATCH = sys.argv[sys.argv.index("--watch") + 1] if "--watch" in sys.argv else "bare"
if WATCH not in ("triton", "proton"):
    from tkdebug.compat import install

    install("native")

import torch  # noqa: E402
import triton  # noqa: E402
from kernels_native import add_kernel, empty_kernel  # noqa: E402

EMPTY_LAUNCHES = 2000
BIG_ELEMENTS, BIG_LAUNCHES = 1 << 27, 50
TRAINING_STEPS, LARGE_STEPS = 20, 5
LAYERS, WIDTH, HEADS, TOKENS, BATCH = 4, 512, 8, 256, 8
# With so many times the batch the host waits for the GPU, not the GPU for the host.
LARGE = 8


class Programs:
    """The programs, each of which gives the seconds per launch or step that it took.

    Attributes:
        steps: host seconds of each step of the last training loop.
    """

    def __init__(self) -> None:
        self.steps: list[float] = []
        self._small = [torch.zeros(64, device="cuda") for _ in range(3)]
        self._big = [torch.zeros(BIG_ELEMENTS, device="cuda") for _ in range(3)]
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, device="cuda"
        )
        self._net = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self._optimizer = torch.optim.AdamW(self._net.parameters())
        self._noises = [
            [torch.randn(size, TOKENS, WIDTH, device="cuda") for _ in range(2)]
            for size in (BATCH, BATCH * LARGE)
        ]

    def empty(self) -> float:
        """Host time of launches of a kernel that does nothing."""
        start = time.perf_counter()
        for _ in range(EMPTY_LAUNCHES):
            empty_kernel[(1,)](*self._small, 64, 64, BLOCK=64)
        return (time.perf_counter() - start) / EMPTY_LAUNCHES

    def big(self) -> float:
        """Launches that the GPU takes long for, until it is done."""
        x, y, out = self._big
        grid = (triton.cdiv(BIG_ELEMENTS, 1024),)
        start = time.perf_counter()
        for _ in range(BIG_LAUNCHES):
            add_kernel[grid](x, y, out, BIG_ELEMENTS, BLOCK=1024)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / BIG_LAUNCHES

    def training(self) -> float:
        """Steps of a small transformer in torch, with a kernel of Triton's in each."""
        return self._train(*self._noises[0], TRAINING_STEPS)

    def large(self) -> float:
        """Return the same steps with a larger batch."""
        return self._train(*self._noises[1], LARGE_STEPS)

    def _train(self, batch: torch.Tensor, noise: torch.Tensor, steps: int) -> float:
        count = batch.numel()
        grid = (triton.cdiv(count, 1024),)
        start = time.perf_counter()
        ends = [start]
        for _ in range(steps):
            noisy = torch.empty_like(batch)
            add_kernel[grid](batch, noise, noisy, count, BLOCK=1024)
            self._optimizer.zero_grad(set_to_none=True)
            self._net(noisy).square().mean().backward()
            self._optimizer.step()
            ends.append(time.perf_counter())
        self.steps = [end - begin for begin, end in pairwise(ends)]
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps


def start_watching(folder: Path) -> Any:
    """Return the objects that have to be kept alive."""
    if WATCH == "proton":
        import triton.profiler as proton

        proton.start(str(folder / "proton"), context="shadow", hook=None)
        return proton
    if WATCH in ("hook", "hooks"):
        import tkdebug.instrument

        return [
            tkdebug.instrument.add_hook(
                enter=lambda kernel, record: None, exit=lambda kernel, record: None
            )
            for _ in range(2 if WATCH == "hooks" else 1)
        ]
    if WATCH == "alone":
        from tkdebug.instrument.cupti.library import Cupti, find_cupti
        from tkdebug.instrument.cupti.recording import Collection
        from tkdebug.runtime.cuda.activity_buffers import activity_buffers

        collection = Collection(Cupti(find_cupti()), activity_buffers())
        collection.start()
        return collection
    if WATCH in ("events", "cupti"):
        from tkdebug.instrument.recorder import Recorder

        return Recorder(folder / f"{WATCH}.tkd", output=False).start()
    return None


def main() -> None:
    """Answer requests until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--watch", required=True)
    parser.add_argument("--answers", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    kept = start_watching(arguments.folder)
    programs = Programs()
    for name in ("empty", "big", "training", "large"):
        getattr(programs, name)()  # compiled, and warm
    torch.cuda.synchronize()
    with os.fdopen(arguments.answers, "w", encoding="utf-8") as answers:
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            torch.cuda.synchronize()
            seconds = getattr(programs, line.strip())()
            torch.cuda.synchronize()
            print(json.dumps(seconds), file=answers, flush=True)
    if WATCH == "proton":
        kept.finalize()
    elif WATCH in ("events", "alone", "cupti"):
        kept.stop()


if __name__ == "__main__":
    main()
