"""An MCP server on the official SDK 2.x whose tool `grow` adds another tool and announces it.

    python changing_server.py

Any free port on loopback. Prints `listening http://127.0.0.1:PORT/mcp` when it is ready; ends with its
standard input.
"""

import os
import signal
import socket
import sys
import threading

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

mcp = MCPServer("changing", version="1.0.0")
READS = ToolAnnotations(readOnlyHint=True)


def grown() -> str:
    """Came later."""
    return "here"


@mcp.tool(annotations=READS)
async def grow(ctx: Context) -> str:
    """Add a tool."""
    mcp.add_tool(grown, annotations=READS)
    await ctx.notify_tools_changed()
    return "grown"


def stop_when_stdin_closes() -> None:
    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


class AnnouncedServer(uvicorn.Server):
    """Prints the ready line once connections are accepted."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            print(f"listening http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)


def main() -> None:
    stop_when_stdin_closes()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    AnnouncedServer(uvicorn.Config(mcp.streamable_http_app(), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
