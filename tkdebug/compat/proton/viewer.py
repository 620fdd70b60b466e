"""`triton.profiler.viewer`: the functions of it that scripts call, and its command.

`parse` and `print_tree` need neither pandas nor hatchet, so what they exchange is no
`hatchet.GraphFrame`. `read` returns one, as scripts go on with its queries and data frames.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tkdebug.errors import TkError
from tkdebug.instrument.profiling import ProfileError, viewer
from tkdebug.instrument.profiling.viewer import ViewedPlace, ViewedProfile


def read(filename: str) -> tuple[Any, list[str], list[str], dict[str, Any]]:
    """A profile as a `hatchet.GraphFrame`, its inclusive and its exclusive metrics, its devices.

    Raises:
        ProfileError: the file is not a profile.
        ImportError: hatchet is not installed.
    """
    root, devices = viewer.read_places(str(filename))
    try:
        from hatchet import GraphFrame
    except ImportError as error:
        raise ImportError(
            "triton.profiler.viewer.read gives a hatchet.GraphFrame, but hatchet cannot be "
            f"imported ({error}): pip install llnl-hatchet; viewer.parse and print_tree need none"
        ) from error
    frame = GraphFrame.from_literal([_literal(root)])
    inclusive = list(frame.show_metric_columns())
    exclusive = [name for name in frame.dataframe.columns if name not in inclusive]
    frame.update_inclusive_columns()
    return frame, inclusive, exclusive, dict(devices)


def _literal(place: ViewedPlace) -> dict[str, Any]:
    return {
        "frame": {"name": place.name, "type": "function"},
        "metrics": place.values,
        "children": [_literal(child) for child in place.children],
    }


def parse(
    metrics: list[str],
    filename: str,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> tuple[ViewedProfile, list[str]]:
    """A profile with `metrics` derived, and their names in it.

    Args:
        metrics: metrics such as time/ms, tflop16/s, gbyte/s, util, time/%.
        filename: the name of a .hatchet file.
        include: regular expression of the names whose paths stay.
        exclude: a pattern for the scopes to leave out, with all below them.
        threshold: least value of the first metric.

    Raises:
        ProfileError: the file is not a profile, or lacks what a metric needs.
    """
    profile = viewer.read_profile(str(filename))
    names = viewer.derive(profile, metrics)
    viewer.keep_places(profile, include, exclude, threshold, names[0])
    return profile, names


def print_tree(
    profile: ViewedProfile,
    metrics: list[str],
    depth: int = 100,
    format: str | None = None,
    print_sorted: bool = False,
) -> None:
    """Print a profile as a tree, `metrics` before each name."""
    for line in viewer.tree_lines(profile, metrics, depth, format):
        print(line)
    if print_sorted:
        for line in viewer.sorted_lines(profile, metrics[0]):
            print(line)


def show_metrics(file_name: str) -> None:
    """Print which metrics a profile has."""
    for line in viewer.metric_lines(viewer.read_profile(file_name)):
        print(line)


def command_parser() -> argparse.ArgumentParser:
    """The options of `python -m triton.profiler.viewer`."""
    parser = argparse.ArgumentParser(
        prog="triton.profiler.viewer", description="Shows a .hatchet file as a tree."
    )
    parser.add_argument("file")
    parser.add_argument("-l", "--list", action="store_true", help="list the metrics there are")
    parser.add_argument("-m", "--metrics", help="one or two, such as tflop16/s,time/ms")
    parser.add_argument("-i", "--include", help="regular expression: show paths through it")
    parser.add_argument("-e", "--exclude", help="regular expression: leave these out")
    parser.add_argument("-t", "--threshold", type=float, help="least value of the first metric")
    parser.add_argument("-d", "--depth", type=int, default=100)
    parser.add_argument("-f", "--format", choices=viewer.FRAME_FORMATS, default="full")
    parser.add_argument("--print-sorted", action="store_true")
    return parser


def main() -> None:
    """Run the command `python -m triton.profiler.viewer`."""
    parser = command_parser()
    arguments = parser.parse_args()
    if arguments.include and arguments.exclude:
        parser.error("give --include or --exclude, not both")
    try:
        if arguments.list:
            show_metrics(arguments.file)
        elif arguments.metrics:
            profile, names = parse(
                arguments.metrics.split(","),
                arguments.file,
                arguments.include,
                arguments.exclude,
                arguments.threshold,
            )
            print_tree(profile, names, arguments.depth, arguments.format, arguments.print_sorted)
        else:
            parser.error("give --metrics, or --list to see which there are")
    except TkError as error:
        sys.exit(f"tkdebug: {error}")


__all__ = ["ProfileError", "main", "parse", "print_tree", "read", "show_metrics"]
