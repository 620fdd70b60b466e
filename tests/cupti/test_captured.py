"""Launches and activities read from buffers that an H200 filled."""

import pytest
from captured_buffers import LAYOUT, captured

from tkdebug.instrument.cupti.activity_join import packed_part
from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    DRIVER,
    LAUNCH_CALLBACK,
    MEMCPY,
    RecordError,
    layout_of,
    records_by_kind,
)


def test_what_torch_ran_eagerly():
    names, data = captured("torch_eager.xz")
    found = records_by_kind(data, LAYOUT)
    assert {kind: len(records) for kind, records in found.items()} == {
        CONCURRENT_KERNEL: 12,
        MEMCPY: 4,
    }
    packed, texts, *_ = packed_part(found, names, 0)
    kernels = packed[packed["kind"] == 0]
    assert [texts[number][:9] for number in kernels["name"][:1]] == ["add_one"]
    assert kernels["grid"][0].tolist() == [4, 1, 1]
    assert kernels["block"][0].tolist() == [128, 1, 1]
    assert kernels["duration_ns"][0] == 865
    gemm = next(k for k in kernels if texts[k["name"]].startswith("nvjet_sm90"))
    assert (gemm["registers"], gemm["dynamic_shared_bytes"]) == (168, 164308)
    copies = packed[packed["kind"] == 1]
    assert [texts[number] for number in copies["name"]] == ["DtoD", "DtoH"] * 2
    assert set(copies["size_bytes"].tolist()) == {4 << 20}


def test_nodes_of_a_graph():
    names, data = captured("graph.xz")
    packed, texts, calls, *_ = packed_part(records_by_kind(data, LAYOUT), names, 0)
    kernels = packed[packed["kind"] == 0]
    ours = [k for k in kernels if texts[k["name"]] == "add_one"]
    # Launched before the capture, between and after the replays; captured with a grid of 2.
    assert [(k["grid"][0], k["graph"]) for k in ours] == [
        (1, 0),
        (3, 0),
        (2, 2),
        (5, 0),
        (2, 2),
        (6, 0),
    ]
    assert len(set(calls.tolist())) < len(calls)


def test_calls_of_the_driver_beside_kernels():
    _, data = captured("calls_and_graph.xz")
    found = records_by_kind(data, LAYOUT)
    calls = found[DRIVER][found[DRIVER]["cbid"] == LAUNCH_CALLBACK]
    # Two launches, and one that was captured: it has no kernel of its own.
    assert (len(calls), set(calls["returnValue"].tolist())) == (3, {0})
    ours = set(found[CONCURRENT_KERNEL]["correlationId"].tolist())
    assert len(ours & set(calls["correlationId"].tolist())) == 2
    assert (calls["start"][1:] > calls["start"][:-1]).all()


@pytest.mark.parametrize("name", ["torch_eager.xz", "graph.xz", "calls_and_graph.xz"])
@pytest.mark.parametrize("version", [28, 130100, 130300, 130400])
def test_layout_of_another_version_refuses_them(name, version):
    with pytest.raises(RecordError):
        records_by_kind(captured(name)[1], layout_of(version))
