"""The SDK's server with our tools, on stdin and stdout."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from tkdebug import __version__
from tkdebug.errors import ErrorRecord, TkError, error_record, error_text
from tkdebug.mcp_server.answers import USUAL_BYTES, error_page
from tkdebug.mcp_server.children import ChildError, Children
from tkdebug.mcp_server.desk import Call, Desk
from tkdebug.mcp_server.parameters import Folder, read_arguments, schema_of
from tkdebug.mcp_server.tools import TOOLS

_INSTRUCTIONS = (
    "tkdebug debugs and profiles Triton kernels, with or without a GPU. `run` a script first; it "
    "records a session, which the other tools read. Each answer says how it was obtained, and the "
    "command that replays it; `more` has the rest of a long one. Paths are relative to the folder "
    "that the server was started for."
)


def serve(root: Path, command: Callable[..., list[str]]) -> None:
    """Answer one client on stdin and stdout until it goes.

    Args:
        root: the folder, outside of which nothing is read or written.
        command: returns the command line that starts tkdebug with some words.
    """
    anyio.run(_serve, root, command)


async def _serve(root: Path, command: Callable[..., list[str]]) -> None:
    async with desk_of(root, command) as desk:
        server = server_of(desk)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_by_signal, desk)
            async with stdio_server() as (reads, writes):
                await server.run(reads, writes, server.create_initialization_options())
            tasks.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def desk_of(root: Path, command: Callable[..., list[str]]) -> AsyncIterator[Desk]:
    """Yield what tools share; at its end all that they started has ended."""
    async with anyio.create_task_group() as tasks:
        children = Children(root, command, tasks)
        try:
            yield Desk(Folder(Path(os.path.realpath(root))), children)
        finally:
            with anyio.CancelScope(shield=True):
                await children.end_all()
            tasks.cancel_scope.cancel()


def server_of(desk: Desk) -> Server[Any]:
    """Return the SDK's server with all tools."""
    tools = [
        mcp_types.Tool(
            name=tool.name, description=tool.description, input_schema=schema_of(tool.parameters)
        )
        for tool in TOOLS
    ]

    async def list_tools(
        context: ServerRequestContext[Any], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext[Any], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        async def progress(seconds: float, message: str) -> None:
            await context.session.report_progress(seconds, None, message)

        text, is_error = await answered(desk, params.name, params.arguments or {}, progress)
        content = mcp_types.TextContent(type="text", text=text)
        return mcp_types.CallToolResult(content=[content], is_error=is_error)

    return Server(
        "tkdebug",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def answered(
    desk: Desk, name: str, given: dict[str, Any], progress: Callable[..., Any]
) -> tuple[str, bool]:
    """Return the JSON that answers a call, and whether it is an error."""
    tool = next((tool for tool in TOOLS if tool.name == name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in TOOLS)
        text = f"got a tool {name[:80]!r}, expected one of {names}"
        return error_page(error_record(text)), True
    try:
        read = read_arguments(tool.parameters, given, desk.folder)
        limit = read.pop("limit", USUAL_BYTES)
        return desk.pages.page(await tool.answer(desk, Call(read, progress)), limit), False
    except ChildError as error:
        return error_page(error.record), True
    except TkError as error:
        return error_page(error_record(error)), True
    except Exception as error:  # a client gets an object, whatever fails
        return error_page(ErrorRecord("internal", error_text(error))), True


async def _end_by_signal(desk: Desk) -> None:
    """End at SIGTERM with all that was started: the thread that reads stdin cannot be cancelled."""
    if os.name != "posix":
        return
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        async for number in signals:
            desk.children.kill_all()
            os._exit(128 + number)
