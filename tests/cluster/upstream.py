"""An MCP server with the official SDK that notes every call in a file before it answers.

    python upstream.py ADDRESS PORT LOG [CERTIFICATE KEY]

Each line of LOG is {"at", "what", "item", "attempt"}: `what` is the tool when its call begins, `done` when an item was written;
`item` is what is to be done, `attempt` the id of the request with which the client asked for it.
"""

import asyncio
import json
import sys
import time

from fastmcp import FastMCP
from mcp.types import ToolAnnotations

PAUSE_MS_MAX = 10_000
"""The longest that a call may be told to take."""

mcp = FastMCP("ledger", version="1.0.0")
address, port, log_file, *tls = sys.argv[1:]
log = open(log_file, "a", buffering=1, encoding="utf-8")
written: set[str] = set()


def note(what: str, item: str, attempt: str) -> None:
    log.write(json.dumps({"at": time.time(), "what": what, "item": item, "attempt": attempt}) + "\n")


async def begin(tool: str, item: str, attempt: str, pause_ms: int) -> None:
    if not 0 <= pause_ms <= PAUSE_MS_MAX:
        raise ValueError(f"pause_ms must be between 0 and {PAUSE_MS_MAX}")
    note(tool, item, attempt)
    if pause_ms:
        await asyncio.sleep(pause_ms / 1000)


@mcp.tool(annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False))
async def read_item(item: str, attempt: str, pause_ms: int = 0) -> str:
    """Read an item."""
    await begin("read_item", item, attempt, pause_ms)
    return f"read {item}"


@mcp.tool(annotations=ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=False))
async def write_item(item: str, attempt: str, pause_ms: int = 0) -> str:
    """Write an item: not to be done twice."""
    await begin("write_item", item, attempt, pause_ms)
    # whose caller has gone does not come this far: the SDK ends it
    written.add(item)
    note("done", item, attempt)
    return f"wrote {item}"


@mcp.tool(annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False))
async def was_written(item: str, attempt: str) -> str:
    """Whether an item was written."""
    await begin("was_written", item, attempt, 0)
    return f"{item in written}".lower()


uvicorn_config = {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]} if tls else {}
mcp.run(
    transport="http", host=address, port=int(port), show_banner=False, log_level="warning", uvicorn_config=uvicorn_config
)
