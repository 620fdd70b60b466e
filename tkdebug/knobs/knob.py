"""What a knob is, and what a set of them does: reading, checking, changing for a while."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast, overload

from tkdebug.errors import UsageError

T = TypeVar("T")
Parser = Callable[[str], object]


class Knob(Generic[T]):
    """One switch: an attribute of a class of knobs, read from the environment at its first look.

    From then on the value is a plain attribute of the instance, so that a launch pays nothing for
    it.

    Args:
        sources: environment variables in order of precedence, each with its parser.
        default: the value when no variable is set.
        type: what a value assigned in code must be an instance of.
        doc: one line for `tkdebug doctor` and the documentation.
    """

    def __init__(
        self,
        sources: Mapping[str, Parser],
        default: T,
        type: type | tuple[type, ...],
        doc: str,
    ) -> None:
        self.name = ""
        self.sources = sources
        self.default = default
        self.type = type
        self.doc = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, knobs: None, owner: type) -> Knob[T]: ...
    @overload
    def __get__(self, knobs: object, owner: type) -> T: ...
    def __get__(self, knobs: object | None, owner: type) -> Knob[T] | T:
        if knobs is None:
            return self
        value = self.read()
        vars(knobs)[self.name] = value
        return value

    if TYPE_CHECKING:
        # `KnobSet.__setattr__` takes values; with a method here, every look would come by.
        def __set__(self, knobs: object, value: T) -> None: ...

    def read(self) -> T:
        """The value by the environment."""
        for variable, parse in self.sources.items():
            text = os.environ.get(variable)
            if text is None:
                continue
            try:
                return cast("T", parse(text))
            except ValueError as error:
                raise UsageError(
                    f"environment variable {variable}: got {text!r}, expected {error}"
                ) from None
        return self.default

    def check(self, value: object) -> object:
        """`value` if it fits; a string is parsed as the environment's would be.

        Raises:
            UsageError: it does not fit.
        """
        if isinstance(value, str):
            parse = next(iter(self.sources.values()))
            try:
                return parse(value)
            except ValueError as error:
                raise UsageError(f"knob {self.name}: got {value!r}, expected {error}") from None
        wrong_bool = isinstance(value, bool) and self.type is int
        if wrong_bool or not isinstance(value, self.type):
            raise UsageError(
                f"knob {self.name}: got {value!r}, expected a value like {self.default!r}"
            )
        return value


class KnobSet:
    """The values in force. Assignment is checked; `scope` changes and restores."""

    table: ClassVar[Mapping[str, Knob[object]]] = {}

    def __init_subclass__(cls) -> None:
        cls.table = {name: knob for name, knob in vars(cls).items() if isinstance(knob, Knob)}

    if not TYPE_CHECKING:  # to which a knob that is not declared is a mistake

        def __getattr__(self, name: str) -> object:
            raise AttributeError(self._unknown(name))

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = self._knob(name).check(value)

    def read_all(self) -> dict[str, object]:
        """Every knob's value by name, so that a bad variable shows at once.

        What has not been looked at stays so: scripts set variables of upstream's themselves.

        Raises:
            UsageError: an environment variable holds something else than expected.
        """
        known = self.__dict__
        return {n: known[n] if n in known else knob.read() for n, knob in self.table.items()}

    def refresh(self) -> None:
        """Forget all values; the environment is read again when they are next looked at."""
        self.__dict__.clear()

    @contextmanager
    def scope(self, **changes: object) -> Iterator[KnobSet]:
        """Change knobs for the length of a `with` block, in every thread.

        Raises:
            UsageError: no such knob, or a value that does not fit.
        """
        checked = {name: self._knob(name).check(value) for name, value in changes.items()}
        before = {name: self.__dict__[name] for name in checked if name in self.__dict__}
        self.__dict__.update(checked)
        try:
            yield self
        finally:
            for name in checked:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)

    def _knob(self, name: str) -> Knob[object]:
        if name not in self.table:
            raise UsageError(self._unknown(name))
        return self.table[name]

    def _unknown(self, name: str) -> str:
        return f"no knob {name!r}; there are {', '.join(self.table)}"
