"""The registered backends, and the targets that they compile for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from tkdebug.compiler.targets.backend import Backend
from tkdebug.errors import UnsupportedError

if TYPE_CHECKING:
    from tkdebug.compiler.targets.target import Target


# Name -> the backend, or where it is: `module:attribute`, imported when it is first asked for.
_BACKENDS: dict[str, Backend | str] = {
    "nvptx": "tkdebug.compiler.targets.nvptx.backend:NVPTX",
}


def register_backend(backend: Backend) -> None:
    """Register `backend` under its name, in place of an earlier one of that name."""
    _BACKENDS[backend.name] = backend


def forget_backend(name: str) -> None:
    """Undo `register_backend`."""
    _BACKENDS.pop(name, None)


def backend_named(name: str) -> Backend:
    """The backend of this name.

    Raises:
        UnsupportedError: there is no such backend.
    """
    found = _BACKENDS.get(name)
    if found is None:
        raise UnsupportedError(f"backend {name!r}: expected one of {', '.join(_BACKENDS)}")
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        loaded: Backend = getattr(import_module(module), attribute)
        _BACKENDS[name] = found = loaded
    return found


def backend_of(target: Target) -> Backend:
    """The backend that compiles for `target`."""
    return backend_named(target.backend)


def backends() -> Iterator[Backend]:
    """The registered backends, in order of registration."""
    for name in tuple(_BACKENDS):
        yield backend_named(name)


def default_backend() -> Backend:
    """The backend whose rules hold if no target is given."""
    return next(backends())


def targets() -> dict[str, Target]:
    """The architectures that tkdebug compiles for, by name."""
    return {name: target for backend in backends() for name, target in backend.targets.items()}


def target_of(asked: str | int | tuple[int, int]) -> Target:
    """The target of a name (`sm_90a`, `sm90`) or of a compute capability (`(9, 0)`).

    Raises:
        UnsupportedError: tkdebug does not compile for it.
    """
    for backend in backends():
        target = backend.find(asked)
        if target is not None:
            return target
    sentence = unsupported_gpu(asked)
    if sentence is None:
        known = ", ".join(targets())
        sentence = f"native mode: got architecture {asked!r}, expected one of {known}"
    raise UnsupportedError(f"{sentence}; use `tkdebug run --mode interpret`")


def unsupported_gpu(asked: object) -> str | None:
    """The error message for a GPU that is known by name but not compiled for; None otherwise."""
    known = list(backends())
    if any(backend.find(asked) is not None for backend in known):
        return None
    sentences = (backend.unsupported(asked) for backend in known)
    return next((sentence for sentence in sentences if sentence is not None), None)
