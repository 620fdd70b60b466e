# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Random numbers of the stand-in's device, apart from the CPU's.

The state of a generator is a seed and an offset, as a GPU's Philox has them. `random_kernels` draws
the numbers that a GPU would; an operation that is not there draws from a generator of the CPU that
begins at both, and moves the offset on as a GPU would.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin.philox import WORDS_OF_CALL, calls_of
from tkdebug.compat.cuda_standin.tensors import announce, is_cuda_device, tensors_in
from tkdebug.compat.cuda_standin.torch_internals import CPU, address_of, give_cuda_device

_SEED_BYTES, _STATE_BYTES = 8, 16
_UNSIGNED = 2**64
_DEFAULT_SEED = 67280421310721
# The step of a Weyl sequence: offsets next to each other begin far apart.
_ODD = 0x9E3779B97F4A7C15
_new: Any = torch._C.Generator.__new__
_by_address: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()


class Generator(torch._C.Generator):
    """`torch.Generator`, also for the stand-in's device."""

    def __new__(cls, device: object = "cpu") -> Generator:
        """Make a generator of the CPU that may say that it is of cuda:0."""
        on_cuda = is_cuda_device(device)
        made: Generator = _new(cls, CPU if on_cuda else device)
        made._on_cuda = on_cuda
        if on_cuda:
            made._seed, made._offset = _DEFAULT_SEED, 0
            made._numbers = torch._C.Generator()
            give_cuda_device(made)
            _by_address[address_of(made)] = made
        return made

    _on_cuda: bool
    _seed: int
    _offset: int
    _numbers: Any

    def __init__(self, device: object = "cpu") -> None:
        if self._on_cuda:
            announce()

    def manual_seed(self, seed: int) -> Generator:
        """Begin the numbers of a seed."""
        if not self._on_cuda:
            super().manual_seed(seed)
        else:
            self._seed, self._offset = int(seed) % _UNSIGNED, 0
        return self

    def seed(self) -> int:
        """Begin the numbers of a random seed."""
        if not self._on_cuda:
            return super().seed()
        self.manual_seed(self._numbers.seed())
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed."""
        return self._seed if self._on_cuda else super().initial_seed()

    def get_state(self) -> Tensor:
        """Return 16 bytes: the seed and the offset."""
        if not self._on_cuda:
            return super().get_state()
        signed = self._seed - _UNSIGNED if self._seed >= _UNSIGNED // 2 else self._seed
        state = torch.tensor([signed, self._offset], dtype=torch.int64, device=CPU)
        return state.view(torch.uint8)

    def set_state(self, new_state: Tensor) -> Generator:
        """Take over a state.

        Raises:
            RuntimeError: it is no state of a CUDA generator.
        """
        if not self._on_cuda:
            super().set_state(new_state)
            return self
        if new_state.device != CPU or new_state.dtype != torch.uint8:
            raise TypeError("expected a torch.ByteTensor, but got " + new_state.type())
        if new_state.numel() not in (_SEED_BYTES, _STATE_BYTES):
            raise RuntimeError("RNG state is wrong size")
        # A state of old has a seed alone.
        seed, *offset = new_state.contiguous().view(torch.int64).tolist()
        self.set_offset(*offset or (0,))
        self._seed = seed % _UNSIGNED
        return self

    def get_offset(self) -> int:
        """Return how many numbers were drawn, as a GPU counts."""
        return self._offset if self._on_cuda else int(super().get_offset())

    def set_offset(self, offset: int) -> Generator:
        """Set the offset that numbers are drawn from next.

        Raises:
            RuntimeError: threads of a GPU cannot begin there: it is no multiple of 4.
        """
        if self._on_cuda:
            if offset % WORDS_OF_CALL:
                raise RuntimeError("offset must be a multiple of 4")
            self._offset = offset
        else:
            super().set_offset(offset)
        return self

    def graphsafe_get_state(self) -> Generator:
        """Return a generator with this state."""
        return self.clone_state()

    def graphsafe_set_state(self, other: torch._C.Generator) -> Generator:
        """Take over another generator's state."""
        return self.set_state(other.get_state())

    def clone_state(self) -> Generator:
        """Return another generator with this state."""
        return Generator(self.device).set_state(self.get_state())

    def taken(self, calls: int) -> tuple[int, int]:
        """Reserve `calls` calls of each thread; return the seed and the first call's number."""
        first_call = self._offset // WORDS_OF_CALL
        self._offset += calls * WORDS_OF_CALL
        return self._seed, first_call

    def drawn(self, count: int) -> Any:
        """Return a CPU generator for one operation of `count` numbers, and advance the offset."""
        seed, first_call = self.taken(calls_of(count))
        return self._numbers.manual_seed((seed + _ODD * (first_call + 1)) % _UNSIGNED)


def _default_generator() -> Generator:
    made = Generator.__new__(Generator, "cuda")
    made._on_cuda = True
    return made


GENERATOR = _default_generator()


def with_random_numbers(op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that draws from the device's generator, or from the one that it is given."""
    arguments = op._schema.arguments
    named = [at for at, each in enumerate(arguments) if "Generator" in str(each.type)]
    name = arguments[named[0]].name if named else ""

    def draw(*args: Any, **kwargs: Any) -> Any:
        if not named:
            return _with_default_numbers(kernel, args, kwargs)
        at = named[0]
        given = args[at] if at < len(args) else kwargs.get(name)
        numbers = chosen(given).drawn(_count(args, kwargs))
        if at < len(args):
            return kernel(*args[:at], numbers, *args[at + 1 :], **kwargs)
        return kernel(*args, **{**kwargs, name: numbers})

    return draw


def chosen(generator: Any) -> Generator:
    """Return the generator that an operator draws from: the device's if it is given None.

    Raises:
        RuntimeError: the generator is of another device.
    """
    if generator is None:
        return GENERATOR
    # Operators are given another Python object of the same generator.
    known = _by_address.get(address_of(generator))
    if known is None:
        raise RuntimeError(
            f"Expected a 'cuda' device type for generator but found '{generator.device.type}'"
        )
    return known


def _count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    given = [tensor.numel() for tensor in tensors_in((*args, *kwargs.values()))]
    return max(given, default=1)


def _with_default_numbers(
    kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an operator on the CPU's default generator: seeded for it, and restored after it."""
    of_cpu = torch.default_generator
    before = of_cpu.get_state()
    of_cpu.manual_seed(GENERATOR.drawn(_count(args, kwargs)).initial_seed())
    try:
        return kernel(*args, **kwargs)
    finally:
        of_cpu.set_state(before)
