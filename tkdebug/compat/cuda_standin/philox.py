"""The numbers that torch's kernels for CUDA draw: Philox4x32-10, its counters set as there.

A thread's numbers are cuRAND's: the key is the seed, the counter's upper half the thread, its lower
half the calls that the thread has made. Which thread draws an element follows the grid that torch
launches (`ATen/native/cuda/DistributionTemplates.h`), and so the device's multiprocessors.
Integers and uniform numbers are a GPU's to the last bit. Of normal ones the bits of Philox are;
sine and logarithm are the GPU's own, which are nearer or farther by some 1e-6.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tkdebug.compat.cuda_standin.device import PROPERTIES

Words = npt.NDArray[np.uint32]
Numbers = Callable[[Words, int], Any]
# The constants of Random123 (Salmon et al., SC 2011).
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_ROUNDS = 10
_KEY_STEPS = np.arange(_ROUNDS, dtype=np.uint64)[:, None, None] * np.array(
    [[0x9E3779B9], [0xBB67AE85]], np.uint64
)
_LOW = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
_BLOCK = 256
_MOST_BLOCKS = (
    PROPERTIES.multi_processor_count * PROPERTIES.max_threads_per_multi_processor // _BLOCK
)
WORDS_OF_CALL = 4
# Lanes that are computed at once: what is computed stays in the cache.
_CHUNK = 1 << 14
# Few numbers are computed for many calls at once, as numpy takes as long for one.
_MOST_KEPT, _LANES_KEPT = 1024, 1 << 14
_INV_32, _INV_53 = 2.0**-32, 2.0**-53
# In curand_globals.h a product of two constants of type float.
_INV_32_2PI = float(np.float32(_INV_32) * np.float32(2 * math.pi))


def words(seed: int, first_call: int, calls: int, threads: range) -> Words:
    """Return the four words of each call of each thread: an array of words, calls, threads."""
    count = calls * len(threads)
    high, low, kept = (np.empty((2, count), np.uint64) for _ in range(3))
    call_numbers = np.uint64(first_call) + np.arange(calls, dtype=np.uint64)[:, None]
    by_call = (calls, len(threads))
    thread_numbers = np.arange(threads.start, threads.stop, dtype=np.uint64)
    high[0].reshape(by_call)[:] = call_numbers & _LOW
    low[0].reshape(by_call)[:] = call_numbers >> _WORD_BITS
    high[1].reshape(by_call)[:] = thread_numbers
    low[1] = 0
    keys = (np.array([[seed & 0xFFFFFFFF], [seed >> 32]], np.uint64) + _KEY_STEPS) & _LOW
    crossed = low
    for key in keys:
        np.multiply(high, _MULTIPLIERS, out=kept)
        np.right_shift(kept, _WORD_BITS, out=high)
        high = np.bitwise_xor(high[::-1], crossed)
        high ^= key
        np.bitwise_and(kept, _LOW, out=low)
        crossed = low[::-1]
    made = np.empty((WORDS_OF_CALL, count), np.uint32)
    made[0::2], made[1::2] = high, crossed
    return made.reshape(WORDS_OF_CALL, *by_call)


def uniform(of: Words, most: int = WORDS_OF_CALL) -> Any:
    """Return numbers above 0 and up to 1 in fp32, at most four of a call."""
    numbers = of[:most].astype(np.float32)
    numbers *= np.float32(_INV_32)
    numbers += np.float32(_INV_32 / 2)
    return numbers


def unit(of: Words, most: int = WORDS_OF_CALL) -> Any:
    """Return numbers from 0 to below 1 in fp32: those of `uniform`, 0 in place of 1."""
    numbers = uniform(of, most)
    numbers[numbers == 1] = 0
    return numbers


def _in_53_bits(low: Words, high: Words) -> Any:
    return (low ^ (high.astype(np.uint64) << np.uint64(21))).astype(np.float64)


def uniform_double(of: Words, most: int = 2) -> Any:
    """Return numbers above 0 and up to 1 in fp64, at most two of a call."""
    numbers = _in_53_bits(of[0 : 2 * most : 2], of[1 : 2 * most : 2])
    return numbers * _INV_53 + _INV_53 / 2


def unit_double(of: Words, most: int = 2) -> Any:
    """Return numbers from 0 to below 1 in fp64: those of `uniform_double`, 0 in place of 1."""
    numbers = uniform_double(of, most)
    numbers[numbers == 1] = 0
    return numbers


def normal(of: Words, most: int = WORDS_OF_CALL) -> Any:
    """Return normal numbers in fp32, at most four of a call: sine and cosine of each two words."""
    pairs = (most + 1) // 2
    radius = np.sqrt(np.float32(-2) * np.log(uniform(of[0 : 2 * pairs : 2])))
    angle = of[1 : 2 * pairs : 2].astype(np.float32) * _INV_32_2PI + _INV_32_2PI / 2
    angle = angle.astype(np.float32)
    if most == 1:
        return np.sin(angle) * radius
    both = np.empty((pairs, 2, *of.shape[1:]), np.float32)
    np.sin(angle, out=both[:, 0])
    np.cos(angle, out=both[:, 1])
    both *= radius[:, None]
    return both.reshape(-1, *of.shape[1:])[:most]


def normal_double(of: Words, most: int = 2) -> Any:
    """Return normal numbers in fp64, at most two of a call."""
    radius = np.sqrt(-2 * np.log(uniform_double(of, 1)))
    angle = _in_53_bits(of[2:3], of[3:4]) * (2 * _INV_53) + _INV_53
    angle *= math.pi
    both = np.concatenate((np.sin(angle) * radius, np.cos(angle) * radius))
    return both[:most]


def bits(of: Words, most: int = WORDS_OF_CALL) -> Any:
    """Return 32 random bits as integers of 64, at most four of a call."""
    return of[:most].astype(np.int64)


def bits_double(of: Words, most: int = 2) -> Any:
    """Return 64 random bits as integers, at most two of a call."""
    high, low = of[0 : 2 * most : 2], of[1 : 2 * most : 2]
    return ((high.astype(np.uint64) << _WORD_BITS) | low).view(np.int64)


_OF_CALL: dict[Numbers, int] = dict.fromkeys(
    (uniform_double, unit_double, normal_double, bits_double), 2
)


def threads_of(count: int) -> int:
    """Return how many threads torch launches for so many elements."""
    return _BLOCK * max(1, min(_MOST_BLOCKS, -(-count // _BLOCK)))


def calls_of(count: int, of_call: int = WORDS_OF_CALL) -> int:
    """Return how often each thread draws for so many elements."""
    if count <= _BLOCK * _MOST_BLOCKS:
        return 1
    return max(0, count - 1) // (threads_of(count) * of_call) + 1


def calls_for(numbers: Numbers, count: int) -> int:
    """Return how often each thread draws for so many elements of a kind of numbers."""
    return calls_of(count, _OF_CALL.get(numbers, WORDS_OF_CALL))


def drawn(numbers: Numbers, seed: int, first_call: int, count: int) -> Tensor:
    """Return numbers in the order of a grid-stride loop; the caller must not change them.

    Element i is drawn by thread i modulo the number of threads. A thread takes the numbers of one
    call one after the other.
    """
    if count <= _MOST_KEPT:
        return torch.from_numpy(_call(numbers, seed, first_call, count, 1)[:count])
    threads, calls = threads_of(count), calls_for(numbers, count)
    most = min(_OF_CALL.get(numbers, WORDS_OF_CALL), -(-count // threads))
    lanes = min(threads, count)
    made = np.empty((calls, most, lanes), numbers(words(seed, 0, 1, range(1)), 1).dtype)
    for call in range(calls):
        for at in range(0, lanes, _CHUNK):
            part = range(at, min(at + _CHUNK, lanes))
            of_part = words(seed, first_call + call, 1, part)
            made[call, :, at : part.stop] = numbers(of_part, most)[:, 0]
    return torch.from_numpy(made).view(-1).narrow(0, 0, count)


def _call(numbers: Numbers, seed: int, call: int, threads: int, most: int) -> Any:
    """Return the numbers of one call, thread by thread, of `threads` threads or more."""
    lanes = 64 << max(0, (threads - 1).bit_length() - 6)
    rows = _LANES_KEPT // lanes
    return _kept(numbers, seed, call // rows * rows, rows, lanes, most)[call % rows]


@functools.lru_cache(maxsize=16)
def _kept(numbers: Numbers, seed: int, first_call: int, rows: int, lanes: int, most: int) -> Any:
    """Return the numbers of `rows` calls, a row for each, thread by thread; results are cached."""
    values = numbers(words(seed, first_call, rows, range(lanes)), most)
    return np.ascontiguousarray(values.transpose(1, 2, 0)).reshape(rows, -1)


def drawn_by_vectors(
    seed: int, first_call: int, count: int, of_thread: int, threads: int
) -> Tensor:
    """Return uniform numbers of threads that take `of_thread` elements next to each other.

    Threads that have finished their elements take the remaining ones.
    """
    calls_at_once = -(-of_thread // WORDS_OF_CALL)
    chunks = -(-count // of_thread)
    threads = min(threads, chunks)
    if chunks == threads <= _MOST_KEPT:
        calls = range(first_call, first_call + calls_at_once)
        made = [_call(uniform, seed, call, threads, WORDS_OF_CALL) for call in calls]
        if of_thread == WORDS_OF_CALL:
            return torch.from_numpy(made[0][:count])
        by_thread = np.concatenate([each.reshape(-1, WORDS_OF_CALL) for each in made], 1)
        return torch.from_numpy(by_thread[:, :of_thread].reshape(-1)[:count])
    turns = -(-chunks // threads)
    values = np.empty((turns, threads, of_thread), np.float32)
    for turn in range(turns):
        first = first_call + turn * calls_at_once
        for at in range(0, threads, _CHUNK):
            part = range(at, min(at + _CHUNK, threads))
            of_calls = uniform(words(seed, first, calls_at_once, part)).transpose(2, 1, 0)
            values[turn, at : part.stop] = of_calls.reshape(len(part), -1)[:, :of_thread]
    return torch.from_numpy(values).view(-1)[:count]
