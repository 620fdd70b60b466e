"""Python that kernels cannot be written in, and what to write instead."""

from __future__ import annotations

import ast

ADVICE: dict[type[ast.AST], str] = {
    ast.Break: "`break` is not supported in kernels; use a `while` loop whose condition ends it, "
    "or mask the work of the remaining iterations",
    ast.Continue: "`continue` is not supported in kernels; put the rest of the body under an `if`",
    ast.Lambda: "`lambda` is not supported in kernels; define a function with @triton.jit",
    ast.NamedExpr: "`:=` is not supported in kernels; assign on a line of its own",
    ast.Dict: "dicts are not supported in kernels; use a tuple or a named tuple",
    ast.DictComp: "dict comprehensions are not supported in kernels; use a tuple",
    ast.Set: "sets are not supported in kernels; use a tuple",
    ast.SetComp: "set comprehensions are not supported in kernels; use a tuple",
    ast.Try: "`try` is not supported in kernels; test the condition with `if` or tl.device_assert",
    ast.FunctionDef: "a function cannot be defined inside a kernel; "
    "move it to the module and decorate it with @triton.jit",
    ast.AsyncFunctionDef: "`async def` is not supported in kernels",
    ast.ClassDef: "a class cannot be defined inside a kernel; move it to the module",
    ast.Delete: "`del` is not supported in kernels; leave the line out, unused values cost nothing",
    ast.Global: "`global` is not supported in kernels; return the value or store it to memory",
    ast.Nonlocal: "`nonlocal` is not supported in kernels; return the value instead",
    ast.Import: "`import` is not supported inside a kernel; move it to the top of the file",
    ast.ImportFrom: "`import` is not supported inside a kernel; move it to the top of the file",
    ast.Yield: "`yield` is not supported in kernels; return a tuple",
    ast.YieldFrom: "`yield from` is not supported in kernels; return a tuple",
    ast.Await: "`await` is not supported in kernels",
    ast.AsyncFor: "`async for` is not supported in kernels",
    ast.AsyncWith: "`async with` is not supported in kernels",
    ast.With: "`with` is not supported in kernels; call the function on a line of its own",
    ast.Match: "`match` is not supported in kernels; use if/elif on constants",
    ast.Starred: "`*` unpacking is not supported here; name each element",
}
