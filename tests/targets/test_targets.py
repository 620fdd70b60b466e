from __future__ import annotations

import pytest

from tkdebug.compiler.targets import target_of
from tkdebug.compiler.targets.nvptx.architectures import TARGETS, ptx_versions
from tkdebug.compiler.targets.nvptx.codegen import ptx_stage
from tkdebug.compiler.targets.nvptx.codegen.wire import StageError
from tkdebug.compiler.targets.registered_backends import unsupported_gpu
from tkdebug.errors import UnsupportedError


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_target_is_found_by_capability_and_by_name(name: str) -> None:
    target = TARGETS[name]
    assert target_of(target.capability) is target
    assert target_of(name) is target
    assert target_of(name.rstrip("a")) is target


@pytest.mark.parametrize("asked", [(7, 0), (8, 8), (10, 1), (13, 0), "sm_70", "gfx942"])
def test_target_of_unsupported_architecture_says_what_there_is(
    asked: tuple[int, int] | str,
) -> None:
    with pytest.raises(UnsupportedError) as error:
        target_of(asked)
    text = str(error.value)
    assert ", ".join(TARGETS) in text
    assert "`tkdebug run --mode interpret`" in text


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((13, 0), "sm_130 (compute capability 13.0) is newer than the GPUs"),
        ("sm_130a", "sm_130 (compute capability 13.0) is newer than the GPUs"),
        (101, "sm_101 (compute capability 10.1) is not among the GPUs"),
        ((8, 8), "sm_88 (compute capability 8.8) is not among the GPUs"),
        ("sm_70", "sm_70 (compute capability 7.0) is older than the GPUs"),
        ("sm_90", None),
        ("sm_1", None),
        ("gfx942", None),
    ],
)
def test_gpu_that_nothing_is_compiled_for_is_named(
    asked: tuple[int, int] | str | int, said: str | None
) -> None:
    sentence = unsupported_gpu(asked)
    assert sentence is None if said is None else (sentence or "").startswith(said)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_target_limits_are_consistent(name: str) -> None:
    target = TARGETS[name]
    reserved = target.shared_bytes_reserved
    assert target.shared_bytes_per_block + reserved == target.shared_bytes_per_sm
    assert target.threads_per_block <= target.warps_per_sm * target.threads_per_warp
    assert target.registers_per_thread * target.threads_per_warp <= target.registers_per_sm


def test_features_only_grow_with_the_capability() -> None:
    names = ["sm_75", "sm_80", "sm_89", "sm_90a"]
    features = [target.capabilities for target in map(TARGETS.__getitem__, names)]
    assert features[0] <= features[1] <= features[2] <= features[3]
    assert "async_copies" in features[1] - features[0]
    assert "wgmma" in features[3] - features[2]


@pytest.mark.parametrize("name", ["sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"])
def test_what_only_hopper_has_is_not_used_after_it(name: str) -> None:
    lost = TARGETS["sm_90a"].capabilities - TARGETS[name].capabilities
    assert lost == {"wgmma"}
    assert ("tcgen05" in TARGETS[name].capabilities) == (name < "sm_120")


def test_targets_that_no_kernel_ran_on_are_marked() -> None:
    assert [target.name for target in TARGETS.values() if target.is_tried] == ["sm_90a"]


def test_assembler_older_than_an_architecture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx_stage, "version", lambda: (12, 8))
    least, wanted = ptx_versions(TARGETS["sm_90a"])
    assert ptx_stage.newest_ptx(wanted, least, "sm_90a") == 87
    for name, release in (("sm_103a", "12.9"), ("sm_110a", "13.0"), ("sm_121a", "12.9")):
        least, wanted = ptx_versions(TARGETS[name])
        with pytest.raises(StageError, match=f"{name} needs nvJitLink {release} or"):
            ptx_stage.newest_ptx(wanted, least, name)
    monkeypatch.setattr(ptx_stage, "version", lambda: (12, 4))
    least, wanted = ptx_versions(TARGETS["sm_80"])
    assert ptx_stage.newest_ptx(wanted, least, "sm_80") == 84
