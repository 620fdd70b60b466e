"""Locals of one program at each line, by upstream Triton's interpreter.

Run by a Python that has upstream Triton, and no tkdebug. Upstream runs the kernel's Python, one
program at a time; Python itself says which line comes next and what its locals are.
"""

from __future__ import annotations

import argparse
import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Generic, TypeVar

os.environ["TRITON_INTERPRET"] = "1"
T = TypeVar("T")


def prepare_process(folders: list[str]) -> None:
    """Make libraries importable that ask for a GPU, or for libdevice."""
    sys.path[1:1] = folders[:1]
    sys.path += folders[1:]
    import torch
    import triton
    from triton.backends.compiler import GPUTarget

    device = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_device_interface=lambda: torch.cuda,
        get_active_torch_device=lambda: torch.device("cpu"),
        get_device_properties=lambda _: {"multiprocessor_count": 132, "max_shared_mem": 232448},
        utils=SimpleNamespace(
            get_device_properties=lambda _: {"multiprocessor_count": 132, "max_shared_mem": 232448}
        ),
    )
    triton.runtime.driver.set_active(device)
    properties = SimpleNamespace(
        multi_processor_count=132, name="reference", major=9, minor=0, total_memory=1 << 36
    )
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_name = lambda *_: "reference"
    torch.cuda.get_device_properties = lambda *_: properties
    _define_libdevice()
    _pass_as_compiled()


def _pass_as_compiled() -> None:
    """Let wrappers of kernels, such as FlagGems', find what they ask of a compiled function."""
    import triton
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import KernelParam

    def signature(function: Any) -> inspect.Signature:
        return inspect.signature(function.fn)

    def params(function: Any) -> list[Any]:
        found = signature(function).parameters.values()
        return [KernelParam(place, one, False, False) for place, one in enumerate(found)]

    InterpretedFunction.signature = property(signature)
    InterpretedFunction.params = property(params)
    InterpretedFunction.cache_key = property(lambda function: function.fn.__qualname__)
    compiled = triton.runtime.JITFunction

    class _Kind(type(compiled)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, compiled | InterpretedFunction)

    class JITFunction(compiled[T], Generic[T], metaclass=_Kind):  # type: ignore[misc, valid-type]
        """Upstream's, of which an interpreted function is one, too."""

    for module in (triton, triton.runtime, triton.runtime.jit):
        module.JITFunction = JITFunction


def _define_libdevice() -> None:
    """Upstream's interpreter has none: its functions are stubs that a compiler replaces."""
    import numpy as np
    import scipy.special
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice
    from triton.runtime.interpreter import TensorHandle

    functions: dict[str, Callable[..., Any]] = {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "pow": np.power,
        "fast_powf": np.power,
        "erf": scipy.special.erf,
        "rint": np.rint,
        "nearbyint": np.rint,
        "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
        "div_rn": np.divide,
        "div_rz": np.divide,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "finitef": np.isfinite,
        "fast_dividef": np.divide,
        "lgamma": scipy.special.gammaln,
    }
    same = ("exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "tanh",
            "sinh", "cosh", "asin", "acos", "atan", "atan2", "sqrt", "floor", "ceil", "trunc",
            "fmod", "abs", "fabs")  # fmt: skip
    names = dict(asin="arcsin", acos="arccos", atan="arctan", atan2="arctan2")
    for name in same:
        functions[name] = getattr(np, names.get(name, name))
    for name in ("expf", "exp2f", "logf", "sinf", "cosf", "tanf", "tanhf", "log2f", "log10f"):
        functions["fast_" + name] = functions[name[:-1]]

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, _semantic: Any = None, **_: Any) -> Any:
            first = next(each for each in args if isinstance(each, tl.tensor))
            data = [each.handle.data if isinstance(each, tl.tensor) else each for each in args]
            found = np.asarray(function(*data))
            is_truth = found.dtype == np.bool_
            element = tl.int1 if is_truth else first.dtype.scalar
            found = found if is_truth else found.astype(data[0].dtype)
            type_ = first.type
            if is_truth:
                type_ = tl.block_type(tl.int1, first.shape) if first.type.is_block() else tl.int1
            return tl.tensor(TensorHandle(found, element), type_)

        return call

    for module in (libdevice, cuda_libdevice):
        for name, function in functions.items():
            if hasattr(module, name):
                setattr(module, name, made(function))


class Values:
    """Locals as plain data; what is the same object is written once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def plain(self, value: Any) -> Any:
        """Kind and data of a local."""
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = (value, self._made(value))
        return found[1]

    def _made(self, value: Any) -> Any:
        import triton.language as tl
        from triton.runtime.interpreter import BlockPointerHandle, TensorDescHandle

        if isinstance(value, tl.constexpr):
            return self.plain(value.value)
        if isinstance(value, tl.tensor):
            if isinstance(value.handle, BlockPointerHandle):
                return ("block pointer", None)
            return self._numbers(value)
        if isinstance(getattr(value, "handle", None), TensorDescHandle):
            return ("descriptor", None)
        if isinstance(value, tuple | list | tl.tuple):
            return ("tuple", [self.plain(item) for item in value])
        if isinstance(value, bool | int | float | str) or value is None:
            return ("constant", value)
        if isinstance(value, tl.dtype):
            return ("dtype", str(value))
        return ("other", type(value).__name__)

    def _numbers(self, value: Any) -> Any:
        import numpy as np
        import torch

        data, type_ = value.handle.data, value.type
        shape = tuple(value.shape) if type_.is_block() else ()
        scalar = type_.scalar
        if scalar.is_ptr():
            return ("pointer", np.array(data).reshape(shape).astype(np.int64))
        if scalar.is_bf16() or scalar.is_fp8():
            kinds = {"bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn,
                     "fp8e5": torch.float8_e5m2}  # fmt: skip
            raw = torch.from_numpy(np.ascontiguousarray(data))
            signed = raw.view(torch.int16 if raw.itemsize == 2 else torch.int8)
            data = signed.view(kinds[str(scalar)]).float().numpy()
        return ("numbers", np.array(data).reshape(shape), str(scalar))


class LineTrace:
    """Notes each line of the kernel and of what it calls, with the locals before it runs.

    Args:
        most: events after which the program is left alone.
    """

    def __init__(self, most: int) -> None:
        import triton
        from triton.runtime.interpreter import InterpretedFunction

        self.events: list[Any] = []
        self.is_whole = True
        self._most = most
        self._wrapper = InterpretedFunction.__call__.__code__
        self._values = Values()
        self._library = str(Path(triton.__file__).parent)
        self._lines: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Python's trace function."""
        file = frame.f_code.co_filename
        if file.startswith(("<", self._library)) or file == __file__:
            return None
        # What combines the elements of a reduction is called by upstream's frames.
        caller = frame.f_back
        if caller is not None and caller.f_code is self._wrapper:
            caller = caller.f_back
        if caller is None or (caller not in self._lines and caller.f_code is not _RUN):
            return None
        if frame.f_code.co_name.startswith("<"):
            return None
        self._lines[frame] = 0
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        from python_lines import live_names, statement_lines

        if event == "return":
            self._lines.pop(frame, None)
        if event != "line":
            return self._line
        line = statement_lines(frame.f_code.co_filename)[frame.f_lineno]
        if self._lines.get(frame) == line:
            return self._line
        self._lines[frame] = line
        if len(self.events) >= self._most:
            self.is_whole = False
            return self._line
        live = live_names(frame.f_code).get(frame.f_lasti, frozenset())
        held = {name: self._values.plain(value) for name, value in frame.f_locals.items()}
        self.events.append((frame.f_code.co_name, frame.f_code.co_filename, line, held, live))
        return self._line


def run_program(function: Any, arguments: dict[str, Any]) -> None:
    """Run one program; frames below this one are the kernel's."""
    function(**arguments)


_RUN = run_program.__code__


def _argument(value: Any) -> Any:
    """An argument of a run-time type as upstream's interpreter wants it; it leaves floats alone."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, _implicit_cvt

    if isinstance(value, float):
        return tl.tensor(TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
    return _implicit_cvt(value)


def evaluate(file: Path, most: int, program: tuple[int, int, int] | None) -> dict[str, Any]:
    """The lines of one program of a launch, with their locals."""
    import torch
    import triton.language as tl
    from launches import found, unpacked
    from triton.runtime import interpreter

    launch, test = torch.load(file, weights_only=False, map_location="cpu")
    kernel = found(launch.module, launch.name)
    while not isinstance(kernel, interpreter.InterpretedFunction):
        kernel = kernel.fn
    given = {name: unpacked(value, tl) for name, value in launch.arguments.items()}
    function = kernel.rewrite()
    bases = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            bases[name] = (value.data_ptr(), value.element_size())
    chosen = program or tuple(axis // 2 for axis in launch.grid)
    scope = interpreter._patch_lang(function)
    interpreter.interpreter_builder.set_grid_dim(*launch.grid)
    interpreter.interpreter_builder.set_grid_idx(*chosen)
    arguments = inspect.getcallargs(function, **given)
    constants = set(launch.constants)
    ready = {
        name: (value if isinstance(value, tl.constexpr) else tl.constexpr(value))
        if name in constants and not callable(value)
        else _argument(value)
        for name, value in arguments.items()
    }
    trace = LineTrace(most)
    sys.settrace(trace)
    try:
        run_program(function, ready)
    finally:
        sys.settrace(None)
        scope.restore()
    return dict(
        program=chosen, events=trace.events, bases=bases, is_whole=trace.is_whole, test=test,
        file=function.__code__.co_filename,
    )  # fmt: skip


def main() -> None:
    """Evaluate the launches of a folder, each into a file beside it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("launches", nargs="*", type=Path)
    parser.add_argument("--path", action="append", default=[], help="folders to import from")
    parser.add_argument("--most", type=int, default=300)
    options = parser.parse_args()
    prepare_process(options.path)
    for file in options.launches:
        out = file.with_suffix(".pickle")
        out.write_bytes(pickle.dumps(dict(refused="the reference's process died", trace=[])))
        # A wild address in a library's kernel ends the process that reads there.
        child = os.fork()
        if not child:
            out.write_bytes(pickle.dumps(_evaluated(file, options.most)))
            os._exit(0)
        os.waitpid(child, 0)
        found = pickle.loads(out.read_bytes())
        print(f"{file.stem}: {found.get('refused') or len(found['events'])}", flush=True)


def _evaluated(file: Path, most: int) -> dict[str, Any]:
    try:
        return evaluate(file, most, None)
    except (Exception, SystemExit) as error:
        where = traceback.format_exc().strip().splitlines()
        return dict(refused=f"{type(error).__name__}: {error}", trace=where[-12:])


if __name__ == "__main__":
    main()
