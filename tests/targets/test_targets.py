from __future__ import annotations

import pytest

from tkdebug.compiler.targets import TARGETS, target_of
from tkdebug.errors import UnsupportedError


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_target_is_found_by_capability_and_by_name(name: str) -> None:
    target = TARGETS[name]
    assert target_of(target.capability) is target
    assert target_of(name) is target
    assert target_of(name.rstrip("a")) is target


@pytest.mark.parametrize("asked", [(7, 5), (8, 7), (10, 0), (12, 0), "sm_70", "gfx942"])
def test_target_of_unsupported_architecture_says_what_there_is(
    asked: tuple[int, int] | str,
) -> None:
    with pytest.raises(UnsupportedError) as error:
        target_of(asked)
    text = str(error.value)
    assert "sm_80 (8.0)" in text
    assert "sm_90a (9.0)" in text
    assert "interpret" in text


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_target_limits_are_consistent(name: str) -> None:
    target = TARGETS[name]
    reserved = target.shared_bytes_reserved
    assert target.shared_bytes_per_block + reserved == target.shared_bytes_per_sm
    assert target.threads_per_block <= target.threads_per_sm
    assert target.registers_per_thread * target.threads_per_warp <= target.registers_per_sm


def test_features_only_grow_with_the_capability() -> None:
    names = ["sm_80", "sm_89", "sm_90a"]
    features = [
        {name for name in target.__slots__ if getattr(target, name) is True}
        for target in map(TARGETS.__getitem__, names)
    ]
    assert features[0] <= features[1] <= features[2]
    assert "wgmma" in features[2] - features[1]
