"""What scripts read off a jit function of its Python: name, text, place, and a hash of the content.

Invariant: the source is looked at when it is asked for, never before.
"""

from __future__ import annotations

import ast
import threading
from types import FunctionType

from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.errors import UsageError
from tkdebug.process.forks import renew_after_forks
from tkdebug.runtime.jit.dependencies import content_key

_UNDER_WAY = "recursion:"


class FunctionSource:
    """The Python function behind a jit function.

    Attributes:
        fn: the Python function.
        source_edits: how often `_unsafe_update_src` replaced its source.
        hash: `cache_key` once it was worked out; set to None to have it worked out again.
    """

    def __init__(self, fn: FunctionType) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__module__ = fn.__module__
        self.__doc__ = fn.__doc__
        self.__globals__ = fn.__globals__
        self.source_edits = 0
        self.hash: str | None = None
        self._edited_source: KernelSource | None = None
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Work out a hash anew that was being worked out."""
        self._lock = threading.RLock()
        if self.hash is not None and self.hash.startswith(_UNDER_WAY):
            self.hash = None

    @property
    def kernel_source(self) -> KernelSource:
        """The function's source.

        Raises:
            CompileError: it is not available.
        """
        return self._edited_source or KernelSource.of(self.fn)

    @property
    def src(self) -> str:
        """The function's text from `def` on."""
        source = self.kernel_source
        skipped = source.definition.lineno - source.first_line
        return "".join(source.text.splitlines(keepends=True)[skipped:])

    @property
    def raw_src(self) -> list[str]:
        """The lines of the function as its file has them, decorators included."""
        return [f"{line}\n" for line in self.kernel_source.lines]

    @property
    def starting_line_number(self) -> int:
        """Line of the first decorator, or of `def`."""
        return self.kernel_source.first_line

    def parse(self) -> ast.Module:
        """The function's text from `def` on, as an AST of its own."""
        return ast.parse(self.src)

    def _unsafe_update_src(self, new_src: str) -> None:
        """Compile `new_src` from now on; callers must forget their own `hash` themselves."""
        original = KernelSource.of(self.fn)
        first_line = original.definition.lineno
        tree = ast.parse(new_src)
        definition = tree.body[0]
        if len(tree.body) != 1 or not isinstance(definition, ast.FunctionDef):
            raise UsageError(f"kernel {self.__name__}: the new source is not a single `def`")
        ast.increment_lineno(definition, first_line - 1)
        lines = tuple(new_src.splitlines())
        self._edited_source = KernelSource(
            self.__name__, original.file, first_line, new_src, definition, lines
        )
        self.source_edits += 1
        self.hash = None

    @property
    def cache_key(self) -> str:
        """Content hash of the source, of what it calls and of the constants it reads."""
        with self._lock:
            if self.hash is None:
                # A placeholder while the callees are read, which may call this function again.
                self.hash = f"{_UNDER_WAY}{self.__qualname__}"
                try:
                    self.hash = content_key(self.fn, self.kernel_source)
                except BaseException:
                    self.hash = None
                    raise
            return self.hash
