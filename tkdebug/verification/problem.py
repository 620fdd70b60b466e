"""The problem: a kernel's file, its reference, and inputs, in whichever way they are given.

Responsible for plain functions and for KernelBench's classes (`Model`, `ModelNew`, `get_inputs`,
`get_init_inputs`); everything else sees calls on lists of arguments.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import sys
import sysconfig
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tkdebug.errors import UsageError, instead_of
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.process.tracebacks import is_own_file
from tkdebug.verification.inputs import Example
from tkdebug.verification.oracle import wide
from tkdebug.verification.records import Case, Request
from tkdebug.verification.rounding import Bounded, DearError, Lifted, NotRunnableError

_WEIGHTS_SEED = 20_000
_TINY = 1e-30
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


class CandidateError(Exception):
    """The kernel's file cannot be used; the exception that it raised is the cause."""


@dataclass
class Problem:
    """A kernel with its reference.

    Attributes:
        candidate: the kernel's function or class.
        reference: the reference's function or class.
        example: the arguments that the problem gives.
        init: constructor arguments of the classes.
        file: the candidate's file.
        device: where the candidate's tensors are.
        takes_tf32: whether the reference's file lets torch round products of fp32 to tf32.
    """

    candidate: Callable[..., Any]
    reference: Callable[..., Any]
    example: Example
    init: list[Any]
    file: str
    device: str
    takes_tf32: bool = False
    _made: dict[object, Any] = field(default_factory=dict)

    @property
    def has_modules(self) -> bool:
        """Whether the candidate is a class of modules."""
        return isinstance(self.candidate, type)

    def function(self, case: Case) -> Callable[..., Any]:
        """Return the candidate, or if it is a class, its module for a case."""
        if not self.has_modules:
            return self.candidate
        return typing.cast(Callable[..., Any], self._module(self.candidate, case, self.device))

    @staticmethod
    def call(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call the candidate."""
        with torch.no_grad():
            return function(*arguments)

    @cached_property
    def source(self) -> str:
        """The text of the candidate's file, "" if there is none."""
        try:
            return Path(self.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    @contextlib.contextmanager
    def other_parameters(self, case: Case) -> Iterator[bool]:
        """Give a case's modules other parameters, in place, for a `with` block.

        Yields whether there are any, of the same names in both.
        """
        modules = (
            self._module(self.candidate, case, self.device),
            self._module(self.reference, case, "cpu"),
        )
        both = [dict(module.named_parameters()) for module in modules]
        if not both[0] or both[0].keys() != both[1].keys():
            yield False
            return
        kept = [{name: p.detach().clone() for name, p in one.items()} for one in both]
        with torch.no_grad():
            for name, given in kept[1].items():
                rng = torch.Generator().manual_seed(_WEIGHTS_SEED + given.numel())
                drawn = torch.randn(tuple(given.shape), generator=rng).to(given.dtype)
                spread = given.std() if given.numel() > 1 else given.abs().amax()
                for one in both:
                    one[name].copy_(0.5 * given + drawn * (0.5 * spread))
        try:
            yield True
        finally:
            with torch.no_grad():
                for one, before in zip(both, kept, strict=True):
                    for name, parameter in one.items():
                        parameter.copy_(before[name])

    def same_names(self) -> dict[str, str] | None:
        """Return the reference's name of each parameter and buffer of the candidate.

        None if one of the reference's has no match, as if the candidate has two in one. A match
        has the same values, by the same seed, and the same name if the candidate has that name.
        """
        case = self.example.case()
        own = self._module(self.candidate, case, self.device).state_dict()
        theirs = self._module(self.reference, case, "cpu").state_dict()
        found: dict[str, str] = {}
        for name, tensor in theirs.items():
            if not tensor.is_floating_point():
                continue
            left = [one for one in own if one not in found and one not in theirs]
            for one in [name] if name in own else left:
                if torch.equal(host_view(own[one]).cpu().reshape(-1), tensor.reshape(-1)):
                    found[one] = name
                    break
            else:
                return None
        return found

    def keeps_more(self) -> bool:
        """Whether the candidate's module keeps tensors without a match in the reference's."""
        names = self.same_names() or {}
        module = self._module(self.candidate, self.example.case(), self.device)
        state = (*module.named_parameters(), *module.named_buffers())
        known = {id(tensor) for name, tensor in state if name in names}
        kept = [t for one in module.modules() for t in _tensors_of(list(vars(one).values()))]
        return any(t.is_floating_point() and id(t) not in known for t in kept)

    @contextlib.contextmanager
    def evaluating(self, case: Case) -> Iterator[bool]:
        """Call `eval()` on a case's modules for a `with` block; yield whether one has children."""
        modules = (
            self._module(self.candidate, case, self.device),
            self._module(self.reference, case, "cpu"),
        )
        for module in modules:
            module.eval()
        try:
            yield any(bool(list(module.children())) for module in modules)
        finally:
            for module in modules:
                module.train()

    def with_init(self, init: Sequence[Any]) -> Problem:
        """Return the problem with other constructor arguments."""
        return replace(self, init=list(init), _made={})

    def other_buffers(self, case: Case, arguments: Sequence[Any], same: Sequence[Any]) -> list[str]:
        """Call candidate and reference; return the names of buffers that then differ.

        Only buffers that the reference's call changes are compared.

        Args:
            case: the case whose modules are called.
            arguments: the candidate's arguments.
            same: the same arguments on the CPU, for the reference.
        """
        reference = copy.deepcopy(self._module(self.reference, case, "cpu"))
        candidate = self._module(self.candidate, case, self.device)
        names = [name for name, _ in reference.named_buffers()]
        before = {name: buffer.clone() for name, buffer in reference.named_buffers()}
        with torch.no_grad():
            reference(*same)
            candidate(*arguments)
        own = dict(candidate.named_buffers())
        now = dict(reference.named_buffers())
        return [
            name
            for name in names
            if before[name].is_floating_point()  # others count calls
            and not torch.equal(now[name], before[name])
            and name in own
            and not _is_near(host_view(own[name]).cpu(), now[name])
        ]

    def call_reference(
        self, arguments: Sequence[Any], case: Case, is_wide: bool, lift: Lifted | Bounded | None
    ) -> Any:
        """Call the reference on the CPU.

        Raises:
            NotRunnableError: it raised an exception.
            DearError: a result would have too many elements.
        """
        default = torch.get_default_dtype()
        try:
            function = self.reference
            if isinstance(self.reference, type):
                function = copy.deepcopy(self._module(self.reference, case, "cpu"))
                function = function.double() if is_wide else function
            if is_wide:
                torch.set_default_dtype(torch.float64)
            # Notes on a script's tensors are of no use here, and take time.
            alone = torch._C.DisableTorchFunction()  # noqa: SLF001
            with torch.no_grad(), alone, lift or contextlib.nullcontext():
                if isinstance(lift, Lifted) and lift.rounding is not None:
                    arguments = _rounded(arguments, lift)
                return function(*arguments)
        except DearError:
            raise
        except Exception as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise NotRunnableError(f"{type(error).__name__}: {text[:300]}") from error
        finally:
            torch.set_default_dtype(default)

    def _module(self, made_by: Any, case: Case, device: str) -> Any:
        """Return a module in a case's type, with the case's parameters."""
        floats = [name for name in case.dtypes if "float" in name]
        given = [t.dtype for t in self.example.tensors if t.is_floating_point()]
        dtype = getattr(torch, floats[0]) if floats and floats[0] != _name(given[0]) else None
        key = (made_by, dtype, case.weights, device)
        if key not in self._made:
            torch.manual_seed(_WEIGHTS_SEED)
            module = made_by(*copy.deepcopy(self.init))
            if case.weights == "random":
                names = self.same_names() if made_by is self.candidate else None
                _draw_parameters(module, names or {name: name for name in module.state_dict()})
            module = module.to(device)
            # A kernel that keeps things in its module keeps them for one case after the other.
            self._made[key] = module if dtype is None else module.to(dtype)
            for name, buffer in self._made[key].named_buffers():
                self._made[(*key, name)] = buffer.detach().clone()
        module = self._made[key]
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if (*key, name) in self._made:
                    buffer.copy_(self._made[(*key, name)])
        return module


def _tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for one in value for t in _tensors_of(one)] if isinstance(value, list | tuple) else []


def _is_near(buffer: Tensor, wanted: Tensor) -> bool:
    """Whether numbers differ by no more than the order of a few sums explains."""
    eps = torch.finfo(wanted.dtype).eps
    return torch.allclose(buffer, wanted, rtol=200 * eps, atol=20 * eps, equal_nan=True)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _rounded(arguments: Sequence[Any], lift: Lifted) -> list[Any]:
    """Return arguments that are off by a rounding error each."""
    assert lift.rounding is not None
    relative = lift.rounding.units * min(lift.rounding.unit, lift.rounding.sum_unit)
    with torch._C._DisableTorchDispatch():  # noqa: SLF001
        return [_off(one, relative, lift) for one in arguments]


def _off(value: Any, relative: float, lift: Lifted) -> Any:
    assert lift.rounding is not None
    if isinstance(value, Tensor) and value.is_floating_point():
        errors = lift.rounding.errors(value)
        if lift.rounding.breaks_ties:
            errors = lift.rounding.uniform(value)
            value += torch.where(value == 0, _TINY * errors, 0.0)
            most = torch.finfo(torch.float32).max
            value.copy_(torch.where(value.isinf(), value.sign() * most, value))
        return value.mul_(1.0 + relative * errors)
    if isinstance(value, list | tuple):
        items = [_off(one, relative, lift) for one in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _draw_parameters(module: Any, names: Mapping[str, str]) -> None:
    """Give a module other parameters: those of a norm are often ones and zeros.

    Args:
        module: the module whose parameters are replaced.
        names: the reference's name of each parameter, which seeds its numbers.
    """
    state = module.state_dict()
    drawn = {}
    for own, name in names.items():
        given = state[own]
        if not given.is_floating_point():
            continue
        rng = torch.Generator().manual_seed(sum(map(ord, name)) + given.numel())
        spread = float(given.double().std()) if given.numel() > 1 else 0.0
        noise = torch.randn(tuple(given.shape), generator=rng) * (spread or 0.3)
        made = given.cpu() + noise.to(given.dtype)
        drawn[own] = made.abs() + 0.1 if name.endswith("var") else made
    module.load_state_dict(drawn, strict=False)


def load(request: Request, originals: Callable[[object], None] = lambda owner: None) -> Problem:
    """Import what a request names, and return the problem.

    Args:
        request: names the candidate and the reference.
        originals: gets the owner of the reference's functions, before they can be replaced.

    Raises:
        UsageError: the reference or the inputs are not there, or fail.
        CandidateError: the kernel's file fails, or lacks the function.
    """
    path = Path(request.file).resolve()
    module_name, colon, name = request.reference.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"--reference {request.reference}: expected module:function")
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    what = f"--reference {request.reference}"
    is_same = module_name == path.stem
    # What the reference's file gives is taken, and called, before the candidate's code runs.
    if not is_same:
        reference_module = _imported(module_name, f"--reference {module_name}")
        reference = _named(reference_module, name, what)
        originals(reference_module)
    takes_tf32 = torch.get_float32_matmul_precision() != "highest"
    module = _import_file(path)
    if is_same:
        reference_module, reference = module, _named(module, name, what)
        originals(reference)
    candidate = _candidate(module, request.function)
    given = _inputs(request, module, reference_module)
    init: list[Any] = []
    if isinstance(candidate, type):
        init = _called(reference_module, module, "get_init_inputs") or []
        if isinstance(init, dict):
            raise UsageError("get_init_inputs: got a dict, expected a list of arguments")
    torch.manual_seed(request.seed)
    try:
        example = Example(given())
    except Exception as error:
        raise UsageError(f"the example inputs: {type(error).__name__}: {error}") from error
    return Problem(candidate, reference, example, list(init), str(path), "cuda", takes_tf32)


def _imported(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{what}: cannot be imported: {reason}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path.name}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CandidateError(f"{path.name}: cannot be imported") from error
    return module


def _named(module: ModuleType, name: str, what: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        names = [each for each in vars(module) if callable(getattr(module, each))]
        raise UsageError(f"{what}: there is no {name}{instead_of(name, names)}")
    return typing.cast(Callable[..., Any], found)


def _candidate(module: ModuleType, name: str) -> Callable[..., Any]:
    what = f"{Path(str(module.__file__)).name}:{name or 'ModelNew'}"
    return _named(module, name or "ModelNew", what)


def _inputs(
    request: Request, module: ModuleType, reference_module: ModuleType
) -> Callable[[], Sequence[Any]]:
    if request.inputs:
        module_name, _, name = request.inputs.partition(":")
        if not name:
            raise UsageError(f"--inputs {request.inputs}: expected module:function")
        where = _imported(module_name, f"--inputs {module_name}")
        return _named(where, name, f"--inputs {request.inputs}")
    for one in (reference_module, module):
        found = getattr(one, "get_inputs", None)
        if callable(found):
            return typing.cast(Callable[[], Sequence[Any]], found)
    raise UsageError(
        "there are no example inputs: neither the reference's file nor the kernel's has "
        "get_inputs(); give --inputs module:function, which returns a list of arguments"
    )


def _called(first: ModuleType, second: ModuleType, name: str) -> Any:
    for module in (first, second):
        function = getattr(module, name, None)
        if callable(function):
            try:
                return function()
            except Exception as error:
                raise UsageError(f"{name}: {type(error).__name__}: {error}") from error
    return None


def references(
    problem: Problem, case: Case, tensors: Sequence[Tensor], laid_out: Callable[[], list[Tensor]]
) -> Callable[..., tuple[Any, list[Tensor]]]:
    """Return a function that runs the reference for an oracle.

    Args:
        problem: the problem with the reference.
        case: the case of the inputs.
        tensors: the case's tensors, contiguous.
        laid_out: makes them in the case's layouts, on the CPU.
    """

    def run(is_wide: bool, lift: Lifted | Bounded | None) -> tuple[Any, list[Tensor]]:
        given = [wide(t) for t in tensors] if is_wide else laid_out()
        arguments = problem.example.filled(given, case.numbers)
        return problem.call_reference(arguments, case, is_wide, lift), given

    return run


def refuses(error: BaseException) -> bool:
    """Whether an exception is a candidate's own check of its arguments."""
    kinds = (AssertionError, ValueError, TypeError, IndexError, NotImplementedError)
    trace, innermost = error.__traceback__, ""
    while trace is not None:
        innermost = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    is_library = is_own_file(innermost) or innermost.startswith(_LIBRARIES)
    return isinstance(error, kinds) and not is_library


def place_of(error: BaseException, file: str) -> int | None:
    """Return the innermost line of a file in an exception's traceback; None if it is not there."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
