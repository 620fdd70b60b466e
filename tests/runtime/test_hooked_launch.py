"""Native launches with hooks around them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tkdebug.instrument import add_hook
from tkdebug.records.events import launch_type
from tkdebug.runtime.launch.native_kernel import NativeKernel


def kernel_of(launched: list[tuple[Any, ...]]) -> Any:
    return SimpleNamespace(
        launch_record=launch_type("k", "native", {}, "hash", lambda values: ()),
        submit=lambda *call: launched.append(call),
        _init_handles=lambda: None,
    )


@pytest.mark.parametrize("passed", [(), (7,), (7, 8, 9)])
def test_hooks_are_around_the_launch_and_see_its_record(passed: tuple[int, ...]) -> None:
    happened: list[Any] = []
    kernel = kernel_of(happened)
    seen = []
    names = ("first", "second")
    hooks = [
        add_hook(
            lambda _, record, name=name: happened.append(f"{name} enters {record.duration_ns}"),
            lambda _, record, name=name: happened.append(f"{name} exits"),
        )
        for name in names
    ]
    hooks.append(add_hook(exit=lambda given, record: seen.append((given, record))))
    try:
        NativeKernel.launch_hooked(kernel, (2, 3, 4), 5, ("x",), passed)
    finally:
        for hook in hooks:
            hook.remove()
    assert happened == [
        "first enters None",
        "second enters None",
        (2, 3, 4, 5, *passed),
        "second exits",
        "first exits",
    ]
    ((given, record),) = seen
    assert given is kernel
    assert (record.kernel, record.grid, record.stream) == ("k", (2, 3, 4), 5)
    assert record.values == ("x",)
    assert record.error is None
    assert record.start_ns > 0
    assert record.duration_ns is not None


def test_error_is_in_the_record_and_raised() -> None:
    kernel = kernel_of([])

    def fail(*call: object) -> None:
        raise RuntimeError("refused")

    kernel.submit = fail
    errors: list[str | None] = []
    with add_hook(exit=lambda _, record: errors.append(record.error)):
        with pytest.raises(RuntimeError, match="refused"):
            NativeKernel.launch_hooked(kernel, (1, 1, 1), 0, (), ())
    assert errors == ["RuntimeError: refused"]


def test_checked_launch_is_made_in_the_place_of_the_bare_one() -> None:
    launched: list[tuple[Any, ...]] = []
    ids: list[int] = []

    def submit_as(number: int) -> Any:
        ids.append(number)
        return lambda *call: launched.append(("checked", *call))

    records: list[int] = []
    with add_hook(enter=lambda _, record: records.append(record.id)):
        checks = SimpleNamespace(submit_as=submit_as)
        NativeKernel.launch_hooked(kernel_of(launched), (1, 1, 1), 0, (), (6,), checks)
    assert launched == [("checked", 1, 1, 1, 0, 6)]
    assert ids == records
