# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""The work of a script while a graph is captured: recorded, undone, and done again by replays.

A GPU runs nothing during a capture. The stand-in must, as the script wants tensors from its
operations; so each is run and recorded, and at the end memory that was there before the capture,
and the state of generators, are restored. The contents of tensors made during the capture are
undefined on a GPU before the first replay: here they are the values that the capture computed.

Only work on CUDA tensors is part of the graph. Which of torch's operations these are shows at the
end: those on memory that counts as CUDA's by then, and on results made of it.

The steps of a graph are torch operations and launches, with the tensors they work on. Each keeps
its tensors: as long as a graph lives, so does the memory that its replays read and write.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tkdebug.compat.cuda_standin.generators import GENERATOR
from tkdebug.errors import shown_path
from tkdebug.interpreter.memory.host_views import memory_of
from tkdebug.interpreter.torch_state import apart_from_the_script
from tkdebug.runtime.launch.graph_capture import CaptureError, refuse_while_capturing, set_capture
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel
from tkdebug.runtime.launch.requests import Grid

CUDA = torch.device("cuda", 0)
_ATEN = torch.ops.aten
# They compute nothing.
_EMPTIES = (
    _ATEN.empty,
    _ATEN.empty_like,
    _ATEN.empty_strided,
    _ATEN.empty_permuted,
    _ATEN.new_empty,
    _ATEN.new_empty_strided,
)
# Written although the schema does not say so: positions of the running mean and variance.
# Composite operations come here as they are in inference mode.
_UNDECLARED_WRITES = dict.fromkeys(
    (
        _ATEN.batch_norm,
        _ATEN.instance_norm,
        _ATEN.native_batch_norm,
        _ATEN._batch_norm_impl_index,
    ),
    (3, 4),
)
_OWN_FOLDERS = (f"{torch.__path__[0]}/", f"{__file__.rsplit('/', 3)[0]}/")


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """One torch operation.

    Attributes:
        place: file and line of the script that it was captured at.
        made: tensors that it made, each with its position among all that it gave.
        stored_to: tensors of its arguments that it writes.
        read: keys of the memory of all its arguments.
        has_gradients: whether gradients were enabled, which some operations look at.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    place: str
    made: tuple[tuple[int, Tensor], ...]
    stored_to: tuple[Tensor, ...]
    read: frozenset[int]
    has_gradients: bool

    def run(self) -> None:
        """Run the operation again; its results go into the memory of the captured ones.

        Raises:
            CaptureError: it fails, or gives another shape than in the capture.
        """
        torch._C._set_grad_enabled(self.has_gradients)
        try:
            results = pytree.tree_leaves(self.function(*self.arguments, **self.keywords))
        except Exception as error:
            raise CaptureError(
                f"{self.place}: {self.function}, captured here, fails in a replay: {error}"
            ) from error
        for position, made in self.made:
            result = results[position]
            if result.shape != made.shape:
                raise CaptureError(
                    f"{self.place}: {self.function}, captured here, made {list(made.shape)} and "
                    f"makes {list(result.shape)} in a replay; a graph's shapes are fixed"
                )
            made.copy_(result)


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One launch of a kernel, with a value for each parameter.

    Attributes:
        stored_to: tensors that it may write.
    """

    kernel: InterpretedKernel
    grid: Grid
    values: tuple[Any, ...]
    stored_to: tuple[Tensor, ...]

    def run(self) -> None:
        """Launch again; hooks see it and faults are reported, as for any launch."""
        self.kernel.launch(self.grid, self.values)


Step = RecordedOperation | RecordedLaunch


def bare(value: Any) -> Any:
    """Return another tensor over the memory of a tensor; return any other value itself.

    The new tensor has a version counter of its own, so that autograd does not take a replay for a
    change by the script, and keeps the memory when the script gives the old one's `.data` another.
    """
    if type(value) not in (Tensor, torch.nn.Parameter):
        return value
    with torch._C.DisableTorchFunction():
        return value.data


def memory_key(tensor: Tensor) -> int:
    """Return a key that is equal for tensors that share memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)  # a sparse tensor has no storage


def run_steps(steps: Sequence[Step]) -> None:
    """Do all steps again, in order."""
    for operations, launch in _runs(steps):
        if operations:
            with _below_autograd():
                for operation in operations:
                    operation.run()
        if launch is not None:
            launch.run()


def _runs(
    steps: Sequence[Step],
) -> Iterator[tuple[list[RecordedOperation], RecordedLaunch | None]]:
    """Yield consecutive operations with the launch after them; None for it at the end."""
    operations: list[RecordedOperation] = []
    for step in steps:
        if isinstance(step, RecordedOperation):
            operations.append(step)
        else:
            yield operations, step
            operations = []
    yield operations, None


@contextmanager
def _below_autograd() -> Iterator[None]:
    """Enter the dispatcher below modes, autograd and autocast, where the operations were recorded.

    Inference mode is on, too: tensors made in it may not be written to outside of it.
    """
    with apart_from_the_script(CUDA), torch.inference_mode():
        yield


class _Memory:
    """An allocation as it was before the capture first wrote to it."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = memory_of(storage)
        self._before = self._storage.clone()  # type: ignore[no-untyped-call]

    def put_back(self) -> None:
        """Restore the allocation's contents, unless it has been resized."""
        if self._storage.nbytes() == self._before.nbytes():
            self._storage.copy_(self._before)


class Capture(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """One capture, in the thread that began it.

    Attributes:
        steps: the recorded work, work on the host included until `end`.
        has_failed: whether something was refused.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self.has_failed = False
        # Memory made during the capture; the steps keep it, so that no key is used twice.
        self._made: dict[int, Tensor] = {}
        self._before: dict[int, _Memory] = {}
        self._generators: dict[torch.Generator, Tensor] = {}
        self._is_inside_operation = False

    def begin(self, generators: list[torch.Generator]) -> None:
        """Record the work of this thread from now on."""
        for generator in (torch.default_generator, GENERATOR, *generators):
            self._keep_state(generator)
        set_capture(self)
        self.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> list[Step]:
        """Stop recording, restore memory and generators, and return the steps of the graph."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        set_capture(None)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            steps, on_device = self._device_steps()
            for key, memory in self._before.items():
                if key in on_device:
                    memory.put_back()
            for generator, state in self._generators.items():
                generator.set_state(state)
        return steps

    def fail(self) -> None:
        """Mark the capture as failed: something was refused, so it makes no graph."""
        self.has_failed = True

    def include(self, steps: Sequence[Step]) -> None:
        """Do the steps of another graph as part of this one."""
        for step in steps:
            # Launches come to `recording` by themselves.
            if isinstance(step, RecordedOperation):
                self._keep_memory((*step.stored_to, *(made for _, made in step.made)))
                self.steps.append(step)
            run_steps([step])

    @contextmanager
    def recording(
        self, kernel: InterpretedKernel, grid: Grid, values: tuple[Any, ...]
    ) -> Iterator[None]:
        """Record the launch that is made in the `with` block as a step of the graph."""
        kept = pytree.tree_map(bare, values)
        stored_to = tuple(kernel.stored_to(kept))
        self._keep_memory(stored_to)
        yield
        # A custom operator is recorded as a whole, and launches again when it is run again.
        if not self._is_inside_operation:
            self.steps.append(RecordedLaunch(kernel, grid, kept, stored_to))

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `func`, and record it if it computes anything."""
        keywords = dict(kwargs or {})
        given = [v for v in pytree.tree_leaves((args, keywords)) if isinstance(v, Tensor)]
        _refuse_waiting(func, args, keywords)
        stored_to = tuple(bare(value) for value in _stored_to(func, args, keywords))
        read = frozenset(map(memory_key, given))
        self._keep_memory(stored_to)
        if isinstance(keywords.get("generator"), torch.Generator):
            self._keep_state(keywords["generator"])
        kept_args, kept_keywords = pytree.tree_map(self._kept(stored_to), (args, keywords))
        results = self._run(func, args, keywords)
        made = self._note_made(results, read)
        changes_only_views = torch.Tag.inplace_view in func.tags
        computes = (made or stored_to) and func.overloadpacket not in _EMPTIES
        if computes and not changes_only_views:
            with_gradients = torch.is_grad_enabled()
            self.steps.append(
                RecordedOperation(
                    func, kept_args, kept_keywords, _place(), made, stored_to, read, with_gradients
                )
            )
        return results

    def _run(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        was_inside, self._is_inside_operation = self._is_inside_operation, True
        try:
            with torch._C.DisableTorchFunction():
                return func(*args, **keywords)
        finally:
            self._is_inside_operation = was_inside

    def _kept(self, stored_to: tuple[Tensor, ...]) -> Callable[[Any], Any]:
        written = set(map(memory_key, stored_to))

        def keep(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            key = memory_key(value)
            # A number in host memory goes to the GPU as a number: its value of now.
            is_number = value.dim() == 0 and not value.is_cuda
            if is_number and key not in self._made and key not in written:
                return value.detach().clone()
            return bare(value)

        return keep

    def _note_made(self, results: Any, read: frozenset[int]) -> tuple[tuple[int, Tensor], ...]:
        """Note the results that share no memory with arguments; return them by position."""
        made = []
        for position, result in enumerate(pytree.tree_leaves(results)):
            if isinstance(result, Tensor) and memory_key(result) not in read:
                kept = bare(result)
                self._made.setdefault(memory_key(result), kept)
                made.append((position, kept))
        return tuple(made)

    def _keep_memory(self, tensors: tuple[Tensor, ...]) -> None:
        for tensor in tensors:
            key = memory_key(tensor)
            if key >= 0 and key not in self._made and key not in self._before:
                with torch._C.DisableTorchFunction():
                    self._before[key] = _Memory(tensor.untyped_storage())

    def _keep_state(self, generator: torch.Generator) -> None:
        if generator not in self._generators:
            self._generators[generator] = generator.get_state()

    def _device_steps(self) -> tuple[list[Step], set[int]]:
        """The steps that work on CUDA memory, and the keys of the memory that they write."""
        on_device = {key for key, made in self._made.items() if made.is_cuda}
        chosen: set[int] = set()
        grows = True
        while grows:
            grows = False
            for number, step in enumerate(self.steps):
                if number in chosen or not _is_on_device(step, on_device):
                    continue
                chosen.add(number)
                on_device |= _written_keys(step)
                grows = True
        return [self.steps[number] for number in sorted(chosen)], on_device


def _written_keys(step: Step) -> set[int]:
    written = set(map(memory_key, step.stored_to))
    if isinstance(step, RecordedOperation):
        written.update(memory_key(made) for _, made in step.made)
    return written


def _is_on_device(step: Step, on_device: set[int]) -> bool:
    if isinstance(step, RecordedLaunch):
        return True
    arguments = pytree.tree_leaves((step.arguments, step.keywords))
    if any(isinstance(value, Tensor) and value.is_cuda for value in arguments):
        return True
    return not on_device.isdisjoint(step.read | _written_keys(step))


def _stored_to(func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> list[Tensor]:
    """The arguments that `func` writes, by its schema."""
    undeclared = _UNDECLARED_WRITES.get(func.overloadpacket, ())
    found: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if not is_written and position not in undeclared:
            continue
        value = keywords.get(argument.name)
        if position < len(args) and not argument.kwarg_only:
            value = args[position]
        found.append(value)
    return [value for value in pytree.tree_leaves(found) if isinstance(value, Tensor)]


def _refuse_waiting(func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Refuse an operation whose result the host must have before it can go on."""
    tags = func.tags
    if not (torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags):
        return
    if keywords.get("output_size") is not None:
        return
    if func.overloadpacket is _ATEN.one_hot and (*args, -1)[1] != -1:
        return  # the number of classes is given
    if func.overloadpacket is _ATEN.index and not any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    ):
        return
    given = pytree.tree_leaves((args, keywords))
    if any(isinstance(value, Tensor) and value.is_cuda for value in given):
        refuse_while_capturing(*_explain_waiting(func))


def _explain_waiting(func: Any) -> tuple[str, str]:
    if func.overloadpacket is _ATEN._local_scalar_dense:
        return (
            "the value of a CUDA tensor is read (.item(), bool(), float(), print…)",
            "keep it on the device, or read it after the replay",
        )
    if torch.Tag.data_dependent_output in func.tags:
        return f"{func} gives the host a value of a CUDA tensor", "compare after the replay"
    if func.overloadpacket is _ATEN.index:
        return "indexing with a mask of bools waits for how many are true", "use torch.where"
    return (
        f"the shape of what {func} gives depends on values of a CUDA tensor",
        "use an operation whose result has a fixed shape, such as torch.where",
    )


def _place() -> str:
    """File and line of the script that asked for this operation."""
    frame = sys._getframe(1)
    outer: Any = frame
    while outer is not None and outer.f_code.co_filename.startswith(_OWN_FOLDERS):
        outer = outer.f_back
    found = outer or frame
    return f"{shown_path(found.f_code.co_filename)}:{found.f_lineno}"
