"""A small MCP server that speaks revision 2026-07-28 over HTTP, on loopback only.

    python modern_server.py --port PORT [--exit-on-stdin-close]

Port 0 takes any free one. When it is ready it prints one line on stdout:
`listening http://127.0.0.1:PORT/mcp`. Its tools carry one kind of annotation
each, so that every tier is there: read, write, destructive, unknown.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
import threading

import uvicorn
from fastmcp import Context, FastMCP
from mcp.types import ToolAnnotations

NOTES_MAX = 1000
"""Notes kept at the same time."""
STEPS_MAX = 100
"""Steps of one `count_slowly` call."""
BACKLOG = 128
"""Connections that may wait to be accepted."""

mcp = FastMCP("modern-notes", version="1.0.0")
notes: dict[str, str] = {"welcome": "This note was here before you came."}


@mcp.tool(title="List notes", annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False))
def list_notes() -> dict[str, str]:
    """List every note with its title and text."""
    return notes


@mcp.tool(title="Count slowly", annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False))
async def count_slowly(steps: int, ctx: Context) -> int:
    """Count up to `steps` (1 to 100), reporting progress at each step."""
    if not 1 <= steps <= STEPS_MAX:
        raise ValueError(f"steps must be between 1 and {STEPS_MAX}")
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await asyncio.sleep(0.01)
    return steps


@mcp.tool(
    title="Add note",
    annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True, openWorldHint=False),
)
def add_note(title: str, text: str) -> str:
    """Add a note. A title that is taken is refused, so nothing is overwritten."""
    if title in notes:
        raise ValueError("a note with this title exists")
    if len(notes) >= NOTES_MAX:
        raise ValueError("there are too many notes")
    notes[title] = text
    return f"added {title}"


@mcp.tool(
    title="Delete note",
    annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=True, openWorldHint=False),
)
def delete_note(title: str) -> str:
    """Delete the note with this title."""
    return f"deleted {title}" if notes.pop(title, None) is not None else f"there is no note {title}"


@mcp.tool
def shout(text: str) -> str:
    """Return the text in capital letters. This tool carries no annotations."""
    return text.upper()


def stop_when_stdin_closes() -> None:
    """Ask for an orderly stop once whoever started this process is gone."""

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class AnnouncedServer(uvicorn.Server):
    """Prints the ready line once connections are accepted."""

    def __init__(self, config: uvicorn.Config, port: int) -> None:
        super().__init__(config)
        self.port = port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            print(f"listening http://127.0.0.1:{self.port}/mcp", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A modern MCP server for demos and tests.")
    parser.add_argument("--port", type=int, required=True, help="0 takes any free port")
    parser.add_argument("--exit-on-stdin-close", action="store_true")
    options = parser.parse_args()
    if options.exit_on_stdin_close:
        stop_when_stdin_closes()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", options.port))
    except OSError as error:
        sys.exit(f"cannot listen on 127.0.0.1:{options.port}: {error.strerror}")
    listener.listen(BACKLOG)
    port = listener.getsockname()[1]
    # Seconds that open streams may hold up the end.
    config = uvicorn.Config(mcp.http_app(), log_level="warning", timeout_graceful_shutdown=2)
    AnnouncedServer(config, port).run(sockets=[listener])


if __name__ == "__main__":
    main()
