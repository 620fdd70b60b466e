"""Kills recorded runs at any moment: the script, the recording process, both, the process group.

Each session has to open and to be honest. Where the recording process lives on, every launch whose
recording had returned in the script is there; where it was killed, too, those up to its last batch.
Needs no GPU. With `--torch` launches take a tensor of torch's, as machine code alone notes them.

    python bench/kills.py [--kills 500] [--only script|process|both|group] [--torch]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tkdebug.instrument.session import Session  # noqa: E402

VICTIMS = ("script", "process", "both", "group")
# Tells the number of the recording process, then of each launch that was noted, and at last -1.
SCRIPT = """
import os, struct, sys, time
from packed_launches import TENSOR, Kernel, note, start
recorder, kernel, tensor = start(sys.argv[1]), Kernel(), TENSOR
if sys.argv[3] == "torch":
    import torch
    tensor = torch.zeros(4, 8)
tell = lambda number: os.write(1, struct.pack("q", number))
tell(recorder._sink.process.number)
for n in range(int(sys.argv[2])):
    if recorder._packer is None:
        break
    tell(note(recorder, kernel, n=n, tensor=tensor))
    if n % 100 == 0:
        recorder.flush()
recorder.stop(0)
tell(-1)
"""
MOST_LAUNCHES = 1_000_000
DRAIN_S = 30.0


def killed_run(victim: str, folder: Path, after_s: float, tensors: str) -> str:
    """Kill one run so long after its first launch; what is wrong with its session, or "".

    Args:
        victim: what is killed.
        folder: for the session.
        after_s: from the first launch on.
        tensors: "torch" or "none", which need not be imported.
    """
    path = folder / "run.tkd"
    here = os.pathsep.join([str(ROOT / "tests" / "instrument"), str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(MOST_LAUNCHES), tensors],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": here},
    ) as script:
        assert script.stdout is not None
        assert script.stderr is not None
        recording = struct.unpack("q", script.stdout.read(8))[0]
        told = script.stdout.read(8)
        time.sleep(after_s)
        if victim in ("process", "both"):
            os.kill(recording, signal.SIGKILL)
        if victim in ("script", "both"):
            script.kill()
        if victim == "group":
            os.killpg(script.pid, signal.SIGKILL)
        told += script.stdout.read()
        said = script.stderr.read().decode()
        status = script.wait()
    numbers = [number for (number,) in struct.iter_unpack("q", told[: len(told) // 8 * 8])]
    if victim == "process":
        if (status, numbers[-1], said.count("\n")) != (0, -1, 1):
            return f"the script ended with {status}, having said {said!r}"
        numbers.pop()
    lives_on = victim in ("script", "group")
    return wrong_with(path, numbers, lives_on)


def wrong_with(path: Path, numbers: list[int], is_whole: bool) -> str:
    """Return the defects of the session, for which `numbers` were noted."""
    lock = path.with_name(f".{path.name}.lock")
    ends_s = time.monotonic() + DRAIN_S
    while is_whole and lock.exists() and time.monotonic() < ends_s:
        time.sleep(0.005)
    with Session.open(path) as session:
        run = session.run()
        found = [one.id for one in session.launches_in_order(limit=MOST_LAUNCHES)]
    if run.end_ns is not None:
        return "its run has an end"
    if sorted(found) != list(range(1, len(found) + 1)):
        return "launches are missing in the midst, or twice"
    if is_whole and len(found) < len(numbers):
        return f"{len(found)} of {len(numbers)} launches"
    # One that was noted when the script was killed had not been reported yet.
    if len(found) > len(numbers) + 1:
        return f"{len(found)} launches, of {len(numbers)}"
    return ""


def main() -> int:
    """Kill, and print what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--only", choices=VICTIMS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", action="store_true", help="launches take torch's tensors")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    failures = 0
    for victim in VICTIMS if arguments.only is None else [arguments.only]:
        for number in range(arguments.kills):
            with tempfile.TemporaryDirectory() as folder:
                tensors = "torch" if arguments.torch else "none"
                wrong = killed_run(victim, Path(folder), moments.uniform(0, 0.2), tensors)
            if wrong:
                failures += 1
                print(f"{victim}, kill {number}: {wrong}")
        print(f"{victim}: {arguments.kills} kills", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
