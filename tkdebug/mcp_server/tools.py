"""The tools of `tkdebug mcp`: adding one is an entry here."""

from __future__ import annotations

from tkdebug.mcp_server import command_tools as commands
from tkdebug.mcp_server import recorded_tools as recorded
from tkdebug.mcp_server.answers import Answer
from tkdebug.mcp_server.debugging import DEBUG, debug
from tkdebug.mcp_server.desk import Call, Desk, Tool
from tkdebug.mcp_server.parameters import Parameter


async def _more(desk: Desk, call: Call) -> Answer:
    return desk.pages.rest(call.given["cursor"])


TOOLS: tuple[Tool, ...] = (
    Tool(
        "run",
        "Run a script with its Triton kernels checked and recorded: faults with line, program, "
        "element and hint, what to look at next, and what it printed. Begin here.",
        commands.RUN,
        commands.run,
        runs_scripts=True,
    ),
    Tool(
        "faults",
        "List the faults of a recorded run: each with its line, calls, first offender, counts, "
        "hint, and the command that shows it again.",
        recorded.FAULTS,
        recorded.faults,
    ),
    Tool(
        "why",
        "Tell what an element of an output was computed from, line by line, up to the elements of "
        "inputs; or where its NaN was born, or why nobody wrote it.",
        commands.WHY,
        commands.why,
        runs_scripts=True,
    ),
    Tool(
        "cause",
        "Tell why comparisons of a recorded run failed: edits of the kernel with which the launch "
        "agrees, or the lines that lose precision.",
        recorded.CAUSE,
        recorded.cause,
    ),
    Tool(
        "reproduce",
        "Write a script of at most 40 lines that shows a fault, mismatch or crash again: its "
        "kernel, launch and tensors, without what it does not need. The script that has it is run.",
        commands.REPRODUCE,
        commands.reproduce,
        runs_scripts=True,
    ),
    Tool(
        "source",
        "Show a kernel's source lines with all that a recorded run knows of each: faults, advice, "
        "share of the time, accesses, instructions, spills, stalls, watched names.",
        recorded.SOURCE,
        recorded.source,
    ),
    Tool(
        "values",
        "Show values that a run recorded by `watch`: minimum, maximum, mean, NaNs by round.",
        recorded.VALUES,
        recorded.values,
    ),
    Tool(
        "debug",
        "Stop in a kernel, with all programs of the grid: start, step, go back in time, continue, "
        "break, watch an element, evaluate expressions, ask why, stop. The script stays stopped "
        "between calls.",
        DEBUG,
        debug,
        runs_scripts=True,
    ),
    Tool(
        "passes",
        "Show what each compiler pass did to a kernel, or to one source line of it.",
        commands.PASSES,
        commands.passes,
        runs_scripts=True,
    ),
    Tool(
        "lines",
        "Show what each source line became in machine code, the costliest first; with `line` its "
        "ops, PTX and SASS. Needs no GPU.",
        commands.LINES,
        commands.lines,
        runs_scripts=True,
    ),
    Tool(
        "advise",
        "Tell why kernels are slow, at which line, and what would help, ranked by predicted gain. "
        "Needs no GPU; of a run that was recorded with `advise`.",
        commands.ADVISE,
        commands.advise,
        runs_scripts=True,
    ),
    Tool(
        "compare",
        "Compare two recorded runs: faults and remarks that are new or gone, and times.",
        commands.COMPARE,
        commands.compare,
    ),
    Tool(
        "verify",
        "Tell whether a kernel is right: it and its reference are called on many inputs. A verdict "
        "(right, wrong or undecided), with the smallest example, the cause, and tricks by name.",
        commands.VERIFY,
        commands.verify,
        runs_scripts=True,
    ),
    Tool(
        "explain",
        "Explain a kind of fault: what happened, an example, the fix, what is no fault.",
        commands.EXPLAIN,
        commands.explain,
    ),
    Tool(
        "more",
        "The rest of an answer that has a cursor.",
        (Parameter("cursor", "the cursor of an answer", is_required=True),),
        _more,
    ),
)
