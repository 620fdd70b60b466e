"""Takes statements, expressions, parameters out of the functions of a script: delta debugging."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tkdebug.reproduction.judge import Oracle, Symptom, statement_text
from tkdebug.reproduction.script import Argument, Launch, Script, Text, argument_text, names_in

_BLOCKS = ("body", "orelse")
# The most characters of a statement that an assigned expression is inlined into.
_MOST_CHARS = 120
Functions = tuple[ast.FunctionDef, ...]


def shrink_statements(script: Script, oracle: Oracle) -> Script:
    """Return the script without statements that its symptom does not need."""
    script = replace(script, functions=script.used_functions)
    while True:
        before = script.statements
        script = _without_statements(script, oracle)
        script = _unwrapped(script, oracle)
        script = shrink_parameters(script, oracle)
        if script.statements == before:
            return script


def shrink_expressions(script: Script, oracle: Oracle) -> Script:
    """Return the script with simpler expressions in statements but that of the symptom."""
    place = 0
    while True:
        nodes = _expressions(script.functions, oracle.symptom)
        if place >= len(nodes):
            return script
        for made in _simpler(nodes[place]):
            candidate = _with_node(script, oracle.symptom, place, made)
            if oracle.shows(candidate):
                script = candidate
                break
        else:
            place += 1


def inline_names(script: Script, oracle: Oracle) -> Script:
    """Return the script with expressions in the place of names that are read once."""
    place = 0
    while place < len(_statements(script.functions)):
        candidate = _inlined(script, place, oracle.symptom)
        if candidate is None or not oracle.shows(candidate):
            place += 1
            continue
        script = candidate
    return script


def _inlined(script: Script, place: int, symptom: Symptom) -> Script | None:
    """Return the script with an assignment inlined into the only use of its name, or None."""
    match _statements(script.functions)[place]:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            text = ast.unparse(value)
        case _:
            return None
    functions = copy.deepcopy(script.functions)
    statement = _statements(functions)[place]
    function = next(one for one in functions if statement in _statements([one]))
    uses = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name]
    if len(uses) != 2 or name in {one.arg for one in _parameters(function)}:
        return None
    reader = next(one for one in uses if isinstance(one.ctx, ast.Load))
    holder = next(
        one for one in reversed(_statements([function])) if any(n is reader for n in ast.walk(one))
    )
    is_long = len(ast.unparse(holder)) + len(text) > _MOST_CHARS
    if is_long or _is_target(function.name, holder, symptom):
        return None

    class Inlined(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return value if node is reader else node

    Inlined().visit(holder)
    return _without(replace(script, functions=functions), {place})


def shrink_parameters(script: Script, oracle: Oracle) -> Script:
    """Return the script without parameters that nothing reads or that a constant can replace."""
    for node in script.used_functions:
        for name in [one.arg for one in _parameters(node)]:
            for candidate in _without_parameter(script, node.name, name, oracle.symptom):
                if oracle.shows(candidate):
                    script = candidate
                    break
    return script


def _statements(functions: Sequence[ast.FunctionDef]) -> list[ast.stmt]:
    """Return the statements of functions, each before those in its blocks."""
    found: list[ast.stmt] = []

    def add(block: Sequence[ast.stmt]) -> None:
        for one in block:
            found.append(one)
            for name in _BLOCKS:
                add(getattr(one, name, ()))

    for function in functions:
        add(function.body)
    return found


def _is_target(function: str, statement: ast.stmt, symptom: Symptom) -> bool:
    return function == symptom.function and statement_text(statement) == symptom.statement


def _holds_target(function: str, statement: ast.stmt, symptom: Symptom) -> bool:
    inner = (one for one in ast.walk(statement) if isinstance(one, ast.stmt))
    return any(_is_target(function, one, symptom) for one in inner)


def _with_functions(script: Script, functions: Functions) -> Script:
    for one in functions:
        ast.fix_missing_locations(one)
    return replace(script, functions=functions)


def _without_statements(script: Script, oracle: Oracle) -> Script:
    whole = script
    places = [
        at
        for function in script.functions
        for at, statement in _numbered(script, function)
        if not _holds_target(function.name, statement, oracle.symptom)
    ]
    places.reverse()  # what is computed goes after its uses
    gone: set[int] = set()
    size = len(places)
    while size >= 1:
        at = 0
        while at < len(places):
            chunk = places[at : at + size]
            candidate = _without(whole, gone | set(chunk))
            if oracle.shows(candidate):
                gone.update(chunk)
                del places[at : at + size]
                script = candidate
            else:
                at += size
        size = size // 2
    return script


def _numbered(script: Script, function: ast.FunctionDef) -> Iterator[tuple[int, ast.stmt]]:
    """Yield the statements of a function with their numbers among those of the script."""
    first = 0
    for one in script.functions:
        own = _statements([one])
        if one is function:
            yield from enumerate(own, first)
        first += len(own)


def _without(script: Script, places: set[int]) -> Script:
    functions = copy.deepcopy(script.functions)
    gone = {id(one) for at, one in enumerate(_statements(functions)) if at in places}

    def clean(block: list[ast.stmt]) -> list[ast.stmt]:
        kept = [one for one in block if id(one) not in gone]
        for one in kept:
            for name in _BLOCKS:
                if getattr(one, name, None):
                    left = clean(getattr(one, name))
                    setattr(one, name, left or ([ast.Pass()] if name == "body" else []))
        return kept

    for function in functions:
        function.body = clean(function.body) or [ast.Pass()]
    return _with_functions(script, functions)


def _unwrapped(script: Script, oracle: Oracle) -> Script:
    """Return the script with the bodies of branches and loops in place of these."""
    at = 0
    while at < len(statements := _statements(script.functions)):
        for made in _blocks_of(statements[at]):
            candidate = _with_block(script, at, made)
            if oracle.shows(candidate):
                script = candidate
                break
        else:
            at += 1
    return script


def _blocks_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    match statement:
        case ast.If(body=body, orelse=orelse):
            yield body
            if orelse:
                yield orelse
        case ast.For(target=ast.Name(id=name), iter=ast.Call(args=arguments), body=body):
            first = arguments[0] if len(arguments) > 1 else ast.Constant(0)
            begun = ast.Assign([ast.Name(name, ast.Store())], first)
            yield [begun, *body]
        case ast.While(body=body) | ast.With(body=body):
            yield body


def _with_block(script: Script, at: int, made: list[ast.stmt]) -> Script:
    functions = copy.deepcopy(script.functions)
    old = _statements(functions)[at]
    own = copy.deepcopy(made)

    def place(block: list[ast.stmt]) -> None:
        for number, one in enumerate(block):
            if one is old:
                block[number : number + 1] = own
                return
            for name in _BLOCKS:
                place(getattr(one, name, []))

    for function in functions:
        place(function.body)
    return _with_functions(script, functions)


def _expressions(functions: Functions, symptom: Symptom) -> list[ast.expr]:
    """Return expressions that may become simpler, the outer ones first."""
    found: list[ast.expr] = []
    for function in functions:
        for statement in _statements([function]):
            if _is_target(function.name, statement, symptom):
                continue
            for name in ("value", "test", "iter"):
                value = getattr(statement, name, None)
                if isinstance(value, ast.expr):
                    _add_expressions(value, found)
    return found


def _add_expressions(node: ast.expr, found: list[ast.expr]) -> None:
    found.append(node)
    match node:
        case ast.Call(args=arguments, keywords=keywords):
            inner = [*arguments, *(word.value for word in keywords)]
        case ast.BinOp(left=left, right=right):
            inner = [left, right]
        case ast.Compare(left=left, comparators=others):
            inner = [left, *others]
        case ast.BoolOp(values=inner):
            pass
        case ast.UnaryOp(operand=operand):
            inner = [operand]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            inner = [test, body, orelse]
        case ast.Subscript(value=value):
            inner = [value]
        case ast.Tuple(elts=inner):
            pass
        case _:
            inner = []
    for one in inner:
        _add_expressions(one, found)


def _simpler(node: ast.expr) -> Iterator[ast.expr]:
    """Yield simpler expressions in place of one."""
    if isinstance(node, ast.Constant):
        return
    yield ast.Constant(0)
    match node:
        case ast.BinOp(left=left, right=right):
            yield left
            yield right
        case ast.Call(args=arguments, keywords=keywords):
            if keywords:
                yield ast.Call(node.func, arguments, [])
            if not ast.unparse(node.func).endswith("range"):
                yield from arguments
        case ast.Subscript(value=value):
            yield value
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.BoolOp(values=values):
            yield from values
        case ast.UnaryOp(operand=operand):
            yield operand


def _with_node(script: Script, symptom: Symptom, place: int, made: ast.expr) -> Script:
    functions = copy.deepcopy(script.functions)
    old = _expressions(functions, symptom)[place]
    new = copy.deepcopy(made)

    class Replaced(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    for function in functions:
        Replaced().visit(function)
    return _with_functions(script, functions)


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _without_parameter(
    script: Script, function: str, name: str, symptom: Symptom
) -> Iterator[Script]:
    """Yield the script without a parameter, or with its value where it is read."""
    node = next(one for one in script.functions if one.name == function)
    is_read = any(name in names_in(statement) for statement in node.body)
    if not is_read:
        yield _dropped(script, function, name)
        return
    launches = [launch for launch in script.launches if launch.function == function]
    calls = sum(function in names_in(one) for one in script.functions)
    if len(launches) != 1 or calls or name not in launches[0].named:
        return
    targets = (one for one in _statements([node]) if _is_target(function, one, symptom))
    if any(name in names_in(one) for one in targets):
        return
    value = launches[0].arguments[name]
    if isinstance(value, int | float | bool | str | Text | None):
        yield _dropped(_with_value(script, function, name, value), function, name)


def _with_value(script: Script, function: str, name: str, value: Argument) -> Script:
    made = ast.parse(argument_text(value), mode="eval").body

    class Inlined(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            is_read = node.id == name and isinstance(node.ctx, ast.Load)
            return copy.deepcopy(made) if is_read else node

    functions = copy.deepcopy(script.functions)
    for one in functions:
        if one.name == function:
            one.body = [Inlined().visit(statement) for statement in one.body]
    return _with_functions(script, functions)


def _dropped(script: Script, function: str, name: str) -> Script:
    """Return the script without a parameter that is not read."""
    functions = copy.deepcopy(script.functions)
    node = next(one for one in functions if one.name == function)
    place = [one.arg for one in _parameters(node)].index(name)
    _drop_default(node, place)
    for field in (node.args.posonlyargs, node.args.args, node.args.kwonlyargs):
        field[:] = [one for one in field if one.arg != name]
    for other in functions:
        for call in ast.walk(other):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == function:
                call.keywords = [word for word in call.keywords if word.arg != name]
                if place < len(call.args):
                    del call.args[place]
    launches = tuple(_without_argument(one, function, name) for one in script.launches)
    return replace(_with_functions(script, functions), launches=launches)


def _drop_default(node: ast.FunctionDef, place: int) -> None:
    arguments = node.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    if place >= positional:
        del arguments.kw_defaults[place - positional]
        return
    default = place - (positional - len(arguments.defaults))
    if default >= 0:
        del arguments.defaults[default]


def _without_argument(launch: Launch, function: str, name: str) -> Launch:
    if launch.function != function or name not in launch.arguments:
        return launch
    arguments = {key: value for key, value in launch.arguments.items() if key != name}
    return replace(launch, arguments=arguments, named=launch.named - {name})
