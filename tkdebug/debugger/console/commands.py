"""All commands of the console: names, help, and the function of each."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tkdebug.causes.mismatch import CAUSE_HELP
from tkdebug.debugger.console import breakpoint_commands as breaks
from tkdebug.debugger.console import ir_commands as irs
from tkdebug.debugger.console import looking_commands as looks
from tkdebug.debugger.console import moving_commands as moves
from tkdebug.debugger.console import why_commands as whys
from tkdebug.debugger.console.command import Command
from tkdebug.debugger.expressions import shown_text
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console


def help_text(console: Console, rest: str) -> None:
    """Return the list of commands, or the help of one."""
    name = rest.strip()
    if name:
        found = _BY_NAME.get(name)
        if found is None:
            raise UsageError(f"help: there is no command {name}")
        usage = f"{found.names[0]} {found.usage}".strip()
        also = f"  (or {', '.join(found.names[1:])})" if len(found.names) > 1 else ""
        console.say(f"{usage}{also}: {found.summary}", usage=usage, summary=found.summary)
        return
    usages = [f"{', '.join(each.names[:2])} {each.usage}".strip() for each in COMMANDS]
    width = max(map(len, usages))
    for usage, command in zip(usages, COMMANDS, strict=True):
        console.say(f"{usage:{width}}  {command.summary}")
    console.say(
        "Anything else is evaluated, or assigned: acc.amax(), x = 0. `;;` separates commands."
    )


_C = Command
COMMANDS: tuple[Command, ...] = (
    _C(("step", "s"), "[N]", "go on to the next line, into functions", moves.step),
    _C(("next", "n"), "[N]", "go on to the next line of this function", moves.over),
    _C(("return", "r"), "", "go on until this function returns", moves.out),
    _C(("stepop", "si"), "[N]", "go on to the next op", moves.step_op),
    _C(("until", "unt"), "[LINE]", "go on to a later line, past the rounds of a loop", moves.until),
    _C(("continue", "c", "cont"), "", "go on to the next breakpoint", moves.go_on),
    _C(("runto", "rt"), "[FILE:]LINE", "go on to a line, once", moves.run_to),
    _C(("rstep", "rs"), "[N]", "go back to the line before, into functions", moves.step_back),
    _C(("rnext", "rn"), "[N]", "go back to the line before, in this function", moves.over_back),
    _C(("rreturn", "rr"), "", "go back to where this function was called", moves.out_back),
    _C(("rstepop", "rsi"), "[N]", "go back to the op before", moves.step_op_back),
    _C(("rcontinue", "rc"), "", "go back to the breakpoint before", moves.go_back),
    _C(
        ("lastwrite", "lw"),
        "OUT[I, J]",
        "go back to the last write of an element",
        moves.last_write,
    ),
    _C(("jump", "j"), "LINE", "go back to when this line ran last", moves.jump),
    _C(("moment",), "[OP.PLACE]", "say which moment this is, or go to one", moves.moment),
    _C(("restart",), "", "go back to the beginning of the launch", moves.restart, False),
    _C(("run",), "", "begin the script again; breakpoints stay", moves.run_again, False),
    _C(("break", "b"), "[WHERE [if CONDITION]]", breaks.BREAK_HELP, breaks.add, False),
    _C(("tbreak",), "WHERE [if CONDITION]", "a breakpoint that stops once", breaks.add_once, False),
    _C(("watch",), "[nan|inf] WHAT", breaks.WATCH_HELP, breaks.watch, False),
    _C(("rwatch",), "X[I, J]", "stop when an element is read", breaks.watch_reads, False),
    _C(("condition",), "N [CONDITION]", "change the condition of a breakpoint", breaks.condition),
    _C(("ignore",), "N COUNT", "pass over a breakpoint that many times", breaks.ignore),
    _C(("commands", "log"), "N TEXT", "print TEXT there, {x} evaluated, and go on", breaks.log),
    _C(("enable",), "N …", "let breakpoints stop again", breaks.enable),
    _C(("disable",), "N …", "let breakpoints be passed over", breaks.disable),
    _C(("clear", "cl"), "[N …]", "take breakpoints away", breaks.clear, False),
    _C(("trials",), "[on|off]", breaks.TRIALS_HELP, breaks.trials, False),
    _C(("print", "p"), "EXPRESSION", "its value; tiles as a summary", looks.print_value),
    _C(("pp",), "EXPRESSION", "its value, every element that fits", looks.print_whole),
    _C(("tile",), "X[0:4, :8]", "a tile's elements as a grid", looks.tile),
    _C(("whatis",), "EXPRESSION", "its type", looks.what_is),
    _C(("vars", "v"), "", "all variables of this function", looks.variables),
    _C(("args", "a"), "", "the arguments of the launch", looks.arguments),
    _C(("display",), "[EXPRESSION]", "show a value at each stop", looks.display, False),
    _C(("undisplay",), "[EXPRESSION]", "show it no more", looks.undisplay, False),
    _C(("why",), "OUT[I, J] | VARIABLE", "what it was computed from, line by line", whys.explain),
    _C(("why-nan", "whynan"), "OUT[I, J]|NAME", "where its NaN was born", whys.explain_nan),
    _C(("why-not-written", "whynot"), "OUT[I, J]", "who missed it, and how", whys.explain_missing),
    _C(("cause",), "[OUT[I, J]]", CAUSE_HELP, whys.explain_cause),
    _C(("where", "w", "bt"), "", "the chain of calls", looks.where),
    _C(("up", "u"), "", "look at the caller", looks.up),
    _C(("down", "d"), "", "look at the called function again", looks.down),
    _C(("list", "l"), "[FIRST[, LAST]]", "source around this line", looks.list_lines),
    _C(("longlist", "ll"), "", "source of this function", looks.list_function),
    _C(("stage",), "[STAGE]", irs.STAGE_HELP, irs.stage, False),
    _C(("ir",), "[N]", "the IR around the op that is about to run", irs.list_ir),
    _C(("layout",), "X", "which thread holds which element of a tile", irs.layout),
    _C(("holder",), "X[I, J]", "who holds an element: warp, lane, register", irs.holder),
    _C(("registers", "regs"), "X WARP LANE", "what a thread holds of a tile", irs.registers),
    _C(("shared",), "[%BUFFER]", "shared memory, and copies on their way to it", irs.shared),
    _C(("pid",), "[X[,Y[,Z]] … | all | EXPRESSION]", looks.PID_HELP, looks.select, False),
    _C(("programs",), "", "where all programs are", looks.programs),
    _C(("help", "h", "?"), "[COMMAND]", "this list, or what a command does", help_text),
    _C(("detach",), "", "stop no more; the script goes on", moves.detach, False),
    _C(("quit", "q", "exit"), "", "end the script", moves.quit_, False),
)
_LOOKING = (
    *(looks.print_value, looks.print_whole, looks.tile, looks.what_is, looks.variables),
    *(looks.arguments, looks.where, looks.list_lines, looks.list_function, looks.programs),
    *(whys.explain, whys.explain_nan, whys.explain_missing),
    *(irs.list_ir, irs.layout, irs.holder, irs.registers, irs.shared),
)
_BY_NAME = {name: command for command in COMMANDS for name in command.names}
# Python's would close stdin.
_AS_IN_PYTHON = {"exit()": "exit", "quit()": "quit"}
_EVALUATE = Command(("!",), "STATEMENT", "evaluate, or assign", looks.evaluate)


def find_command(line: str) -> tuple[Command, str]:
    """The command of a line, and the words after its name."""
    if line.startswith("!"):
        return _EVALUATE, line[1:].strip()
    word, _, rest = line.partition(" ")
    word = _AS_IN_PYTHON.get(word, word)
    rest = rest.strip()
    is_assignment = rest.startswith("=") and not rest.startswith("==")
    command = _BY_NAME.get(word)
    if command is not None and not is_assignment:
        return command, rest
    if word[:1] == "?":
        return _BY_NAME["help"], line[1:]
    _refuse_nonsense(line)
    return _EVALUATE, line


def is_command(word: str) -> bool:
    """Whether a word is a command at stops in kernels."""
    return word in _BY_NAME


def is_way_back(word: str) -> bool:
    """Whether a word is a command that goes back in time."""
    command = _BY_NAME.get(word)
    return command is not None and command.summary.startswith("go back to ")


def only_looks(word: str) -> bool:
    """Whether a word is a command that answers, and changes nothing."""
    command = _BY_NAME.get(word)
    return command is not None and command.run in _LOOKING


def looking_names() -> list[str]:
    """The names of the commands that only look."""
    return [command.names[0] for command in COMMANDS if command.run in _LOOKING]


def _refuse_nonsense(line: str) -> None:
    try:
        ast.parse(line)
    except (RecursionError, MemoryError):
        raise UsageError(f"{shown_text(line)}: it has too many levels") from None
    except (SyntaxError, ValueError):
        import difflib

        word = line.split()[0]
        near = difflib.get_close_matches(word, list(_BY_NAME), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{shown_text(line)}: neither a command nor Python; {hint}`help` lists commands"
        ) from None
