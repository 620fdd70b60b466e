"""Scripts as data: their text, and the file beside them."""

import json

import torch

from tkdebug.reproduction.script import DATA_SUFFIX, Launch, Memory, Ref, Script, View
from tkdebug.reproduction.shrink_data import resized


def script(*memories, shapes, **arguments):
    places = zip(memories, shapes, strict=True)
    views = {f"t{n}": View(memory.name, *shape) for n, (memory, shape) in enumerate(places)}
    given = {f"p{n}": Ref(name) for n, name in enumerate(views)} | arguments
    launch = Launch("kernel", (4,), given, frozenset({"BLOCK"}), {})
    return Script((), {}, {}, {one.name: one for one in memories}, views, (launch,))


def test_file_is_one_of_safetensors_that_the_text_reads(tmp_path):
    halves = torch.arange(6, dtype=torch.float16)
    wide = torch.randn(4, dtype=torch.float64)
    memories = (
        Memory("a", torch.float16, 6, "saved", halves),
        Memory("b", torch.float64, 4, "saved", wide),
    )
    made = script(*memories, shapes=[((2, 3), (3, 1)), ((2,), (2,), 1)])
    path = tmp_path / f"short{DATA_SUFFIX}"
    path.write_bytes(made.data())
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    assert head["a"] == {"dtype": "F16", "shape": [6], "data_offsets": [32, 44]}
    assert (8 + size) % 64 == 0
    assert len(data) == 8 + size + 44
    lines = [line for line in made.text().splitlines() if line.startswith(("saved", "t"))]
    names = {"torch": torch, "__file__": str(tmp_path / "short.py")}
    exec("\n".join(lines).replace(".cuda()", ".clone()"), names)
    assert torch.equal(names["t0"], halves.reshape(2, 3))
    assert torch.equal(names["t1"], wide[[1, 3]])


def test_what_follows_an_extent_changes_with_it():
    memory = Memory("a", torch.float32, 96, "saved", torch.arange(96.0))
    first, *_ = resized(
        script(memory, shapes=[((8, 12), (12, 1))], n=96, rows=8, stride=12, BLOCK=8), 8, 2
    )
    (launch,) = first.launches
    assert [launch.arguments[name] for name in ("n", "rows", "stride", "BLOCK")] == [24, 2, 12, 2]
    assert first.views["t0"] == View("a", (2, 12), (12, 1))
    assert torch.equal(first.memories["a"].data, torch.arange(24.0))


def test_number_that_is_a_size_and_a_stride_changes_as_either():
    memory = Memory("a", torch.float32, 8192, "saved", torch.arange(8192.0))
    rows_of_a_slice = script(memory, shapes=[((64, 2), (128, 1))], number=128)
    found = {one.launches[0].arguments["number"] for one in resized(rows_of_a_slice, 64, 2)}
    assert found == {4, 128}


def test_extent_of_an_expanded_tensor_is_resized():
    memory = Memory("a", torch.float32, 12, "saved", torch.arange(12.0))
    first, *_ = resized(script(memory, shapes=[((8, 12), (0, 1))]), 8, 2)
    assert first.views["t0"] == View("a", (2, 12), (0, 1))
    assert torch.equal(first.memories["a"].data, memory.data)
