"""Times of the planted forms and of the better ones, on a GPU; a line of JSON each.

python tests/advise/measure.py [--compiler triton] SIZE FILE…

Kernels are compiled by tkdebug, whose code predictions are for, or by an installed Triton.
"""

import argparse
import json
import runpy
from pathlib import Path

import torch

import tkdebug


def time_us(launch, repeats=20):
    launch()
    torch.cuda.synchronize()
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times = []
    for _ in range(repeats):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(4_000_000)
        start.record()
        launch()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", choices=("tkdebug", "triton"), default="tkdebug")
    parser.add_argument("size", type=int)
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    if arguments.compiler == "tkdebug":
        tkdebug.install(mode="native")
    for file in arguments.files:
        for name, case in runpy.run_path(file)["CASES"].items():
            row = {"file": Path(file).stem, "case": name, "compiler": arguments.compiler}
            for form in ("planted", "better"):
                try:
                    row[form] = round(time_us(case(form, arguments.size)), 1)
                except Exception as error:
                    row[form] = f"{type(error).__name__}: {str(error)[:120]}"
            print(json.dumps(row), flush=True)


main()
