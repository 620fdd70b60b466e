"""Parameters that a launch does not pass.

`Config` has values of parameters and options that a tuner may choose; `@heuristics` works
parameters out from the arguments of each launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tkdebug.runtime.jit.function import KernelInterface
from tkdebug.runtime.launch.requests import requested

_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")


class Config:
    """One configuration a tuner may choose.

    Args:
        kwargs: values of constexpr parameters.
        num_warps: warps per program.
        num_stages: stages of the software pipeline.
        num_ctas: thread blocks per cluster.
        maxnreg: registers per thread at most.
        pre_hook: called with all arguments by name before each launch.
        ir_override: file of edited IR to launch instead.
    """

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], object] | None = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs = kwargs
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Older pickles lack the younger options.
        self.__init__(state.get("kwargs", {}))  # type: ignore[misc]
        self.__dict__.update(state)

    def all_kwargs(self) -> dict[str, Any]:
        """Keywords of a launch with this configuration; options that are None are left out."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        return {**self.kwargs, **{name: v for name, v in options.items() if v is not None}}

    def _identity(self) -> tuple[object, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)

    def __hash__(self) -> int:
        return hash(self._identity())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    @property
    def brief(self) -> str:
        """Text of the configuration, without clusters of one block and without an absent limit."""
        shown = {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}
        if self.num_ctas != 1:
            shown["num_ctas"] = self.num_ctas
        if self.maxnreg is not None:
            shown["maxnreg"] = self.maxnreg
        return ", ".join(f"{name}: {value}" for name, value in shown.items())

    def __str__(self) -> str:
        shown = {
            **self.kwargs,
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
        }
        return ", ".join(f"{name}: {value}" for name, value in shown.items())

    def __repr__(self) -> str:
        return f"Config({self})"


class Heuristics(KernelInterface):
    """A kernel some of whose parameters are functions of the others.

    Attributes:
        fn: the kernel, or a tuner around it.
        values: a function of all arguments by name, for each parameter it sets.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        values: Mapping[str, Callable[[dict[str, Any]], Any]],
    ) -> None:
        self.fn = fn
        self.arg_names = list(arg_names)
        self.values = values

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Work the parameters out and launch."""
        with requested(self, args, dict(kwargs), grid):
            positional = dict(zip(self.arg_names, args, strict=False))
            for name, heuristic in self.values.items():
                kwargs[name] = heuristic({**positional, **kwargs})
            return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Decorator: work out parameters from the arguments of each launch.

    Args:
        values: for each parameter a function of all arguments by name.
    """

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, fn.arg_names, values)

    return decorate
