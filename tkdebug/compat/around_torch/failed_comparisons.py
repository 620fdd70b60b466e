"""Detects failing comparisons of torch and numpy, and passes the compared values to a callback.

A comparison that holds costs the call of one more function. An exception raised by an assertion is
a failure. A negative result of `allclose`, `equal` and the like is a failure if the statement that
calls them is an `assert` that needs a positive one, and no failure if the `assert` needs a negative
one; elsewhere it is a question.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from tkdebug.causes.comparison import Comparison, tolerances_of
from tkdebug.causes.expectations import REFERENCE
from tkdebug.compat.after_torch import after_import
from tkdebug.compat.around_torch.unwritten_memory import OF_NUMPY, OF_TESTING
from tkdebug.compat.replacements import Replacements
from tkdebug.errors import Frame
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.process.named_files import source_lines
from tkdebug.process.tracebacks import is_own_file

# Functions here are watched by other modules, too, whose frames lie between.
_WATCHING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
Tolerances = tuple[float, float, bool]
Failed = Callable[[Comparison], None]


@dataclass(frozen=True, slots=True)
class _Compared:
    """A function that compares its first two arguments.

    Attributes:
        name: the name as people write it.
        tolerances: rtol, atol and whether NaNs are equal, of a call with two tensors.
        fails: whether its result says no; None for a function that raises.
    """

    name: str
    tolerances: Callable[[Tensor, Tensor, Mapping[str, Any], Sequence[Any]], Tolerances]
    fails: Callable[[Any], bool] | None


def _exact(a: Tensor, b: Tensor, keywords: Mapping[str, Any], rest: Sequence[Any]) -> Tolerances:
    return 0.0, 0.0, False


def _exact_with_nans(
    a: Tensor, b: Tensor, keywords: Mapping[str, Any], rest: Sequence[Any]
) -> Tolerances:
    return 0.0, 0.0, True


def _of_close(a: Tensor, b: Tensor, keywords: Mapping[str, Any], rest: Sequence[Any]) -> Tolerances:
    """Tolerances of torch.testing.assert_close."""
    rtol, atol = tolerances_of(a, b)
    given = keywords.get("rtol"), keywords.get("atol")
    if given[0] is not None or given[1] is not None:
        rtol, atol = float(given[0] or 0.0), float(given[1] or 0.0)
    return rtol, atol, bool(keywords.get("equal_nan", False))


def _of_allclose(
    a: Tensor, b: Tensor, keywords: Mapping[str, Any], rest: Sequence[Any]
) -> Tolerances:
    """Tolerances of allclose and isclose, of torch and of numpy."""
    given = dict(zip(("rtol", "atol", "equal_nan"), rest, strict=False)) | dict(keywords)
    rtol, atol = given.get("rtol", 1e-5), given.get("atol", 1e-8)
    return float(rtol), float(atol), bool(given.get("equal_nan", False))


def _of_numpy_allclose(
    a: Tensor, b: Tensor, keywords: Mapping[str, Any], rest: Sequence[Any]
) -> Tolerances:
    """Tolerances of numpy.testing.assert_allclose."""
    given = dict(zip(("rtol", "atol", "equal_nan"), rest, strict=False)) | dict(keywords)
    rtol, atol = given.get("rtol", 1e-7), given.get("atol", 0.0)
    return float(rtol), float(atol), bool(given.get("equal_nan", True))


def _of_decimals(
    a: Tensor, b: Tensor, keywords: Mapping[str, Any], rest: Sequence[Any]
) -> Tolerances:
    """Tolerances of numpy.testing's assert_almost_equal and assert_array_almost_equal."""
    decimal = rest[0] if rest else keywords.get("decimal", 6)
    return 0.0, 1.5 * 10.0 ** -float(decimal), True


def _no(result: Any) -> bool:
    return result is False or (type(result).__module__ == "numpy" and not result)


def _not_all(result: Any) -> bool:
    return isinstance(result, Tensor) and result.device.type == "cpu" and not bool(result.all())


_NUMPY: Mapping[str, _Compared] = {
    "allclose": _Compared("numpy.allclose", _of_allclose, _no),
    "array_equal": _Compared("numpy.array_equal", _exact, _no),
    "assert_allclose": _Compared("numpy.testing.assert_allclose", _of_numpy_allclose, None),
    "assert_almost_equal": _Compared("numpy.testing.assert_almost_equal", _of_decimals, None),
    "assert_array_almost_equal": _Compared(
        "numpy.testing.assert_array_almost_equal", _of_decimals, None
    ),
    "assert_array_equal": _Compared("numpy.testing.assert_array_equal", _exact_with_nans, None),
    "assert_equal": _Compared("numpy.testing.assert_equal", _exact_with_nans, None),
}


def watch_failures(failed: Failed) -> Callable[[], None]:
    """Call `failed` with each comparison that fails from now on; return a function that ends it."""
    replaced = Replacements()
    watched = functools.partial(_watched, failed)
    for name, compared in (
        ("allclose", _Compared("torch.allclose", _of_allclose, _no)),
        ("equal", _Compared("torch.equal", _exact, _no)),
        ("isclose", _Compared("torch.isclose", _of_allclose, _not_all)),
    ):
        replaced.set(torch, name, watched(getattr(torch, name), compared))

    def with_torch_testing() -> None:
        testing = sys.modules["torch.testing"]
        compared = _Compared("torch.testing.assert_close", _of_close, None)
        replaced.set(testing, "assert_close", watched(testing.assert_close, compared))

    def with_numpy(module: str, names: Sequence[str]) -> None:
        owner = sys.modules[module]
        for name in names:
            if name in _NUMPY and hasattr(owner, name):
                replaced.set(owner, name, watched(getattr(owner, name), _NUMPY[name]))

    for module, action in (
        ("torch.testing", with_torch_testing),
        ("numpy", functools.partial(with_numpy, "numpy", OF_NUMPY)),
        ("numpy.testing", functools.partial(with_numpy, "numpy.testing", OF_TESTING)),
    ):
        replaced.on_restore(after_import(module, action))
    return replaced.restore


class _Depth(threading.local):
    """Nesting of watched functions in a thread: some of them call others."""

    now = 0


_DEPTH = _Depth()


def _watched(failed: Failed, function: Callable[..., Any], compared: _Compared) -> Any:
    @functools.wraps(function)
    def watched(*args: Any, **keywords: Any) -> Any:
        if _DEPTH.now:
            return function(*args, **keywords)
        _DEPTH.now += 1
        try:
            result = function(*args, **keywords)
            if compared.fails is not None and compared.fails(result):
                _hand_on(failed, compared, args, keywords)
            return result
        except AssertionError:
            if compared.fails is None:
                _hand_on(failed, compared, args, keywords)
            raise
        finally:
            _DEPTH.now -= 1

    return watched


def _hand_on(
    failed: Failed, compared: _Compared, args: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
    while frame is not None and is_own_file(frame.f_code.co_filename):
        if compared.fails is not None and not frame.f_code.co_filename.startswith(_WATCHING):
            return  # a comparison that tkdebug makes for itself, as the interpreter does
        frame = frame.f_back
    caller = _caller(frame)
    if caller is None or (compared.fails is not None and caller is not frame):
        return  # a comparison that torch or numpy makes for itself
    # The script's modes, as its default device, are not for what is computed to explain it.
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        for a, b in _pairs(args, keywords):
            rtol, atol, equal_nan = compared.tolerances(a, b, keywords, args[2:])
            expects = True if compared.fails is None else _expected_answer(caller)
            if expects is False:
                return  # `assert not torch.equal(…)`: the answer is the one that is wanted
            raises, at = bool(expects), (_frame(caller),)
            reference = REFERENCE.get()
            failed(Comparison(compared.name, a, b, rtol, atol, equal_nan, at, raises, reference))
            return


def _pairs(args: Sequence[Any], keywords: Mapping[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the pairs of compared tensors; for sequences, the unequal pairs first."""
    values = list(args[:2])
    for names in (("actual", "input", "a", "a1", "x"), ("expected", "desired", "other", "b", "a2")):
        values += [keywords[name] for name in names if name in keywords]
    if len(values) < 2:
        return
    first, second = values[:2]
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        pairs = [
            pair
            for one, other in zip(first, second, strict=False)
            if (pair := _pair(one, other)) is not None
        ]
        yield from sorted(pairs, key=lambda pair: bool(torch.equal(*pair)))
        return
    pair = _pair(first, second)
    if pair is not None:
        yield pair


def _pair(first: Any, second: Any) -> tuple[Tensor, Tensor] | None:
    a, b = _tensor(first), _tensor(second)
    if a is None or b is None:
        return None
    if a.shape != b.shape:
        try:
            b = b.expand(a.shape)
        except RuntimeError:
            return None
    return a, b


def _tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return host_view(value.detach())
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "fiub":
        # The array may share a tensor's memory, by which the tensor is found.
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return torch.tensor(value) if isinstance(value, int | float) else None


def _caller(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame, from `frame` outward, that is the script's, or None."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_own_file(file) and not _is_of_comparing_package(frame):
            return frame
        frame = frame.f_back
    return None


def _is_of_comparing_package(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in ("torch", "numpy", "contextlib", "unittest")


def _frame(frame: FrameType) -> Frame:
    return Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _expected_answer(frame: FrameType) -> bool | None:
    """Return the answer that an assertion around the call wants, or None without one."""
    source = "".join(source_lines(frame.f_code.co_filename, frame.f_globals))
    for first, last, wanted in _assertions(source):
        if first <= frame.f_lineno <= last:
            return wanted
    return None


@functools.lru_cache(maxsize=8)
def _assertions(source: str) -> tuple[tuple[int, int, bool | None], ...]:
    """Return the first and last line of each assertion, and the answer that it wants."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(
        (node.lineno, node.end_lineno or node.lineno, _wanted(node.test))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    )


def _wanted(test: ast.expr) -> bool | None:
    """Return the result that the call in a condition must give for it to hold; None if unclear."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        each = {_wanted(value) for value in test.values}
        return each.pop() if len(each) == 1 else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _wanted(test.operand)
        return None if inner is None else not inner
    match test:
        case ast.Call(
            func=ast.Name(id="all" | "any" as name),
            args=[ast.GeneratorExp(elt=asked) | ast.ListComp(elt=asked)],
        ):
            inner = _wanted(asked)
            # That one of several is equal is asked by `any`, and the others may differ.
            return inner if name == "all" or inner is False else None
        case ast.Call():
            return True
    return None
