"""Arguments as bytes, and the function that hands them to the driver, with a fake in its place."""

import ctypes
import struct
import threading
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

import tkdebug
from tkdebug.compiler import dtypes
from tkdebug.compiler.analysis.tensor_maps import MadeMap, TensorMap
from tkdebug.compiler.dtypes import block_type, pointer_type, tensor_descriptor_type
from tkdebug.compiler.frontend.arguments import Constant
from tkdebug.errors import LaunchError, UnsupportedError
from tkdebug.runtime.cuda import tensor_maps
from tkdebug.runtime.cuda.launcher import LaunchShape, make_submit
from tkdebug.runtime.cuda.packing import Slot, bfloat16_bits, checked_value, kernel_slots
from tkdebug.runtime.errors import (
    ArgumentOverflowError,
    ArgumentTypeError,
    CudaError,
)
from tkdebug.runtime.launch.allocation import make_workspace

CONFIG = struct.Struct("=7I4xQQI4x")


class FakeDriver:
    """Stands for cuLaunchKernelEx: keeps what it is given as bytes."""

    def __init__(self, slots, statuses=(), size=8):
        self.slots = slots
        self.size = size
        self.statuses = list(statuses)
        self.launches = []

    def __call__(self, config, function, parameters, extra):
        fields = CONFIG.unpack(ctypes.string_at(config, CONFIG.size))
        pointers = (ctypes.c_uint64 * self.slots).from_address(parameters)
        values = [ctypes.string_at(pointer, self.size) for pointer in pointers]
        self.launches.append((fields, function, values))
        return self.statuses.pop(0) if self.statuses else 0


def never(status, is_last):
    raise AssertionError(f"status {status}")


def submit_to(specs, shape=None, recover=never, statuses=()):
    names = [f"p{index}" for index in range(len(specs))]
    slots = kernel_slots(names, specs)
    fake = FakeDriver(len(slots), statuses)
    shape = shape or LaunchShape(0x30, 128, 1024)
    arguments = [f"v{index}" for index in range(len(specs))]
    return make_submit("k", slots, arguments, shape, recover, fake), fake


def test_slots_follow_the_ir_arguments():
    half = tensor_descriptor_type(block_type(dtypes.float16, (16, 32)))
    specs = [
        pointer_type(dtypes.float32),
        Constant(1),
        (dtypes.int32, pointer_type(dtypes.int8)),
        half,
    ]
    slots = kernel_slots(["x", "one", "pair", "desc"], specs)
    assert [slot.name for slot in slots] == [
        "x", "pair.0", "pair.1", "desc",
        "desc.shape.0", "desc.shape.1", "desc.strides.0", "desc.strides.1",
        "desc.shape.0", "desc.shape.1", "desc.strides.0", "desc.strides.1",
    ]  # fmt: skip
    assert "".join(slot.code for slot in slots) == "QiQQqqqqiiqq"
    assert [slot.expression for slot in slots[:3]] == ["v0", "v2[0]", "v2[1].data_ptr()"]


def test_submit_packs_config_and_values():
    specs = [
        pointer_type(dtypes.float32), dtypes.int32, dtypes.int64, dtypes.uint64, dtypes.float32,
        dtypes.int1, dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8,
    ]  # fmt: skip
    submit, fake = submit_to(specs)
    submit(
        3, 4, 5, 0x77, 0x7F00_0000_1000, -2, 1 << 40, (1 << 64) - 1, 1.5, True, 0.5, 1.0, 2.5, -1
    )
    fields, function, values = fake.launches[0]
    assert fields == (3, 4, 5, 128, 1, 1, 1024, 0x77, 0, 0)
    assert function == 0x30
    formats = ("Q", "i", "q", "Q", "f", "?", "e", "H", "d", "b")
    got = [
        struct.unpack_from(f"={code}", value)[0]
        for code, value in zip(formats, values, strict=True)
    ]
    assert got == [
        0x7F00_0000_1000, -2, 1 << 40, (1 << 64) - 1, 1.5, True, 0.5, 0x3F80, 2.5, -1,
    ]  # fmt: skip


def test_submit_without_arguments():
    submit, fake = submit_to([])
    submit(1, 1, 1, 0)
    assert fake.launches[0][2] == []


def test_submit_opens_tuples_and_descriptors():
    x = torch.zeros(8, 32, dtype=torch.float16)
    descriptor = tkdebug.TensorDescriptor.from_tensor(x, [4, 32])
    half = tensor_descriptor_type(block_type(dtypes.float16, (4, 32)))
    submit, fake = submit_to([(dtypes.int32, pointer_type(dtypes.float16)), half])
    submit(1, 1, 1, 0, (7, x), descriptor)
    values = [int.from_bytes(value, "little", signed=True) for value in fake.launches[0][2]]
    assert values == [7, x.data_ptr(), x.data_ptr(), 8, 32, 32, 1, 8, 32, 32, 1]


def test_tensor_maps_stand_where_addresses_would(monkeypatch):
    encoded = []

    def encode(map_, address, shape, strides):
        encoded.append((map_, address, shape, strides))
        return bytes(range(128))

    monkeypatch.setattr(tensor_maps, "encode", encode)
    x = torch.zeros(8, 32, dtype=torch.float16)
    half = tensor_descriptor_type(block_type(dtypes.float16, (8, 32)))
    specs = [dtypes.int32, half, (half, dtypes.int32)]
    map_ = TensorMap("f16", (8, 32), 64, "zero")
    binary = SimpleNamespace(
        tensor_maps={1: map_, 10: map_}, made_maps=(), workspace_bytes=0, checks=None
    )
    slots = kernel_slots(["n", "desc", "pair"], specs, binary)
    assert [(slot.name, slot.code, slot.expression) for slot in slots if slot.tensor_map] == [
        ("desc", "128s", "v1"),
        ("pair.0", "128s", "v2[0]"),
    ]
    fake = FakeDriver(len(slots), size=128)
    submit = make_submit("k", slots, ["v0", "v1", "v2"], LaunchShape(1, 128, 0), never, fake)
    descriptor = tkdebug.TensorDescriptor.from_tensor(x, [8, 32])
    for _ in range(2):
        submit(1, 1, 1, 0, 7, descriptor, (descriptor, 9))
        values = fake.launches[-1][2]
        assert values[1] == values[10] == bytes(range(128))
        numbers = [int.from_bytes(value[:8], "little") for value in values]
        assert numbers[:1] + numbers[2:10] == [7, 8, 32, 32, 1, 8, 32, 32, 1]
        assert numbers[11:] == [8, 32, 32, 1, 8, 32, 32, 1, 9]
    # Once for each slot, whatever the number of launches.
    assert encoded == [(map_, x.data_ptr(), (8, 32), (32, 1))] * 2
    submit(1, 1, 1, 0, 7, descriptor, (tkdebug.TensorDescriptor.from_tensor(x[1:], [8, 32]), 9))
    assert encoded[2:] == [(map_, x[1:].data_ptr(), (7, 32), (32, 1))]


def test_what_has_no_tensor_map_is_launched_by_pointers(monkeypatch):
    monkeypatch.setattr(tensor_maps, "encode", lambda *given: bytes(range(128)))
    specs = [pointer_type(dtypes.float16), dtypes.int32, dtypes.uint32]
    made = MadeMap(TensorMap("f16", (8, 32), 64, "zero"), 0, ("8", "{1}"), ("{1}", "1"), (1, 2))
    binary = SimpleNamespace(tensor_maps={}, made_maps=(made,), workspace_bytes=0, checks=None)
    slots = kernel_slots(["x", "n", "u"], specs, binary)
    assert slots[3].expression == "v0, (8, v1, ), (v1, 1, ), (v1, wrapped(v2, 32), )"
    fake, others = FakeDriver(4, size=128), []
    submit = make_submit(
        "k", slots, ["v0", "v1", "v2"], LaunchShape(1, 32, 0), never, fake,
        by_pointers=lambda *given: others.append(given) or "other",
    )  # fmt: skip
    assert submit(5, 1, 1, 0, 4096, 64, 3) is None
    assert fake.launches[0][2][3] == bytes(range(128))
    for unfit in ((4096, 0, 3), (4096, 64, 1 << 31)):
        assert submit(5, 1, 1, 0, *unfit) == "other"
        assert others.pop() == (5, 1, 1, 0, *unfit)
    assert len(fake.launches) == 1


def test_launches_get_a_workspace_for_all_their_programs():
    binary = SimpleNamespace(tensor_maps={}, made_maps=(), workspace_bytes=384, checks=None)
    slots = kernel_slots(["n"], [dtypes.int64], binary)
    assert [slot.name for slot in slots] == ["n", "workspace"]
    fake, asked, alive = FakeDriver(2), [], weakref.WeakSet()

    class Memory:
        def data_ptr(self):
            return 0x7000

    def allocate(size, stream):
        asked.append((size, stream))
        memory = Memory()
        alive.add(memory)
        return memory

    def launch(*given):
        # It lives until the driver has the launch.
        assert len(alive) == 1
        return fake(*given)

    shape = LaunchShape(1, 128, 0, workspace_bytes=384)
    submit = make_submit("k", slots, ["v0"], shape, never, launch, new_workspace=allocate)
    submit(2, 3, 5, 77, 9)
    assert asked == [(2 * 3 * 5 * 384, 77)]
    assert [int.from_bytes(value, "little") for value in fake.launches[0][2]] == [9, 0x7000]
    assert not alive


@pytest.mark.parametrize(("address", "fits"), [(4096, True), (4096 + 64, False)])
def test_workspaces_of_the_users_allocator_are_aligned(address, fits):
    asked = []

    def allocate(*given):
        asked.append(given)
        return SimpleNamespace(data_ptr=lambda: address)

    tkdebug.set_allocator(allocate)
    try:
        with nullcontext() if fits else pytest.raises(LaunchError, match="a multiple of 128"):
            assert make_workspace(256, 128, 0, 77).data_ptr() == address
    finally:
        tkdebug.set_allocator(None)
    assert asked == [(256, 128, 77)]


def test_driver_gets_what_a_tensor_map_is_made_of(monkeypatch):
    number, words = ctypes.c_int, (ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32))
    prototype = ctypes.CFUNCTYPE(
        number, ctypes.c_void_p, number, ctypes.c_uint, ctypes.c_void_p,
        words[0], words[0], words[1], words[1], *[number] * 4,
    )  # fmt: skip
    got, status = [], 0

    def encode(place, kind, rank, address, sizes, steps, box, every, *modes):
        ctypes.memset(place, 7, 128)
        dims = (sizes[:rank], steps[: rank - 1], box[:rank], every[:rank])
        got.append((place % 64, kind, address, *dims, modes))
        return status

    function = prototype(encode)
    place = ctypes.cast(function, ctypes.c_void_p).value
    monkeypatch.setattr(tensor_maps.driver_api, "function_address", lambda name, version: place)
    uncached = tensor_maps._encode_function.__wrapped__
    monkeypatch.setattr(tensor_maps, "_encode_function", uncached)
    map_ = TensorMap("f16", (2, 64, 32), 64, "nan")
    made = tensor_maps.encode(map_, 1 << 44, (5, 96, 80), (8000, 80, 1))
    assert made == b"\7" * 128
    # CU_TENSOR_MAP_DATA_TYPE_FLOAT16; no interleaving, swizzles of 64, promotion to 128, NaN.
    dims = ([80, 96, 5], [160, 16000], [32, 64, 2], [1, 1, 1])
    assert got == [(0, 6, 1 << 44, *dims, (0, 2, 2, 1))]
    status = 1
    monkeypatch.setattr(tensor_maps.driver_api, "status_name", lambda status: "INVALID_VALUE")
    with pytest.raises(CudaError, match="cuTensorMapEncodeTiled: INVALID_VALUE"):
        tensor_maps.encode(map_, 1 << 44, (5, 96, 80), (8000, 80, 1))


def test_floats_beyond_the_type_become_infinite_as_in_c():
    submit, fake = submit_to([dtypes.float32, dtypes.float16])
    submit(1, 1, 1, 0, 1e39, -1e6)
    values = fake.launches[0][2]
    assert struct.unpack_from("=f", values[0])[0] == float("inf")
    assert struct.unpack_from("=e", values[1])[0] == float("-inf")


def test_negative_ints_wrap_where_there_is_no_sign():
    submit, fake = submit_to([dtypes.uint32])
    submit(1, 1, 1, 0, -1)
    assert fake.launches[0][2][0][:4] == b"\xff" * 4


def test_ints_that_do_not_fit_are_named():
    submit, fake = submit_to([dtypes.int32])
    with pytest.raises(
        ArgumentOverflowError, match=r"kernel k: argument `p0` is 2147483648, .*32 bits"
    ):
        submit(1, 1, 1, 0, 1 << 31)
    assert fake.launches == []
    with pytest.raises(ArgumentTypeError, match="`p0` is a str, expected an int"):
        submit(1, 1, 1, 0, "x")


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1.00390625, 1.01171875, 3.4e38, 1e39, 1e-40])
def test_bfloat16_rounds_as_torch(value):
    # Through float32, as a float argument of a kernel goes.
    expected = torch.tensor(value, dtype=torch.float32).bfloat16().view(torch.int16).item() & 0xFFFF
    assert bfloat16_bits(value) == expected
    assert bfloat16_bits(float("nan")) == 0x7FC0


def test_addresses_must_be_numbers():
    with pytest.raises(ArgumentTypeError, match="an address"):
        checked_value("k", Slot("x", "Q", "v0"), object())


def test_type_that_cannot_be_passed():
    with pytest.raises(UnsupportedError, match="parameter `x`: an argument of type fp8e5"):
        kernel_slots(["x"], [dtypes.float8e5])


def test_launch_attributes_stand_in_an_array():
    shape = LaunchShape(1, 128, 0, clusters=2, cooperative=True, programmatic=True)
    submit, fake = submit_to([], shape)
    submit(1, 1, 1, 0)
    *_, address, count = fake.launches[0][0]
    raw = ctypes.string_at(address, 72 * count)
    entries = [struct.unpack_from("=I4x3I", raw, 72 * index) for index in range(count)]
    assert entries == [(4, 2, 1, 1), (5, 1, 0, 0), (2, 1, 0, 0), (6, 1, 0, 0)]


def test_a_launch_inside_a_launch_has_memory_of_its_own():
    specs = [dtypes.int32]
    slots = kernel_slots(["n"], specs)
    seen = []

    def fake(config, function, parameters, extra):
        if len(seen) == 0:
            seen.append(None)
            submit(2, 1, 1, 0, 22)
        pointer = ctypes.c_uint64.from_address(parameters).value
        seen.append(ctypes.c_int32.from_address(pointer).value)
        return 0

    submit = make_submit("k", slots, ["v0"], LaunchShape(1, 32, 0), never, fake)
    submit(1, 1, 1, 0, 11)
    assert seen == [None, 22, 11]


def test_threads_launch_at_once():
    slots = kernel_slots(["n"], [dtypes.int64])
    wrong = []

    def fake(config, function, parameters, extra):
        fields = CONFIG.unpack(ctypes.string_at(config, CONFIG.size))
        pointer = ctypes.c_uint64.from_address(parameters).value
        value = ctypes.c_int64.from_address(pointer).value
        if fields[0] != value:
            wrong.append((fields[0], value))
        return 0

    submit = make_submit("k", slots, ["v0"], LaunchShape(1, 32, 0), never, fake)

    def work(base):
        for number in range(base, base + 2000):
            submit(number, 1, 1, 0, number)

    threads = [threading.Thread(target=work, args=(1 + 10000 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_failed_launch_is_tried_once_more():
    reported = []
    submit, fake = submit_to(
        [dtypes.int32], recover=lambda s, last: reported.append((s, last)), statuses=[201]
    )
    submit(1, 1, 1, 0, 5)
    assert reported == [(201, False)]
    assert len(fake.launches) == 2


def test_checked_kernel_takes_its_table_and_bounds_behind_all_others():
    x = pointer_type(dtypes.float32)
    plan = {"bounds": ("x", "pair.0"), "takes_table": True, "watches": (), "timeline": None}
    checks = SimpleNamespace(**plan)
    binary = SimpleNamespace(tensor_maps={}, made_maps=(), workspace_bytes=16, checks=checks)
    slots = kernel_slots(("x", "pair"), (x, (x, dtypes.int32)), binary)
    assert [slot.name for slot in slots[3:]] == [
        "workspace", "check table", "shown table",
        "begin of x", "end of x", "elements of x",
        "begin of pair.0", "end of pair.0", "elements of pair.0",
    ]  # fmt: skip
    fake = FakeDriver(len(slots))
    memory = SimpleNamespace(data_ptr=lambda: 7)
    submit = make_submit(
        "k", slots, ["v0", "v1", "checks"], LaunchShape(0x30, 128, 0, workspace_bytes=16), never,
        fake, new_workspace=lambda size, stream: memory,
    )  # fmt: skip
    tensor = torch.zeros(4)
    submit(
        1,
        1,
        1,
        0,
        tensor.data_ptr(),
        (tensor, 3),
        (64, 72, 100, 200, 25, 300, (1 << 63) - 1, (1 << 31) - 1),
    )
    ((_, _, values),) = fake.launches
    numbers = [int.from_bytes(value, "little") for value in values[3:]]
    assert numbers == [7, 64, 72, 100, 200, 25, 300, (1 << 63) - 1, (1 << 31) - 1]
