"""The official client of the Agent Client Protocol for Python: arguments, commands and events are those of acp/src/main.rs."""

import asyncio
import json
import sys
from typing import Any

from acp import PROTOCOL_VERSION, connect_to_agent, text_block
from acp.schema import AllowedOutcome, ClientCapabilities, DeniedOutcome, Implementation, RequestPermissionResponse
from acp.ws import create_websocket_stream


def tell(name: str, value: Any) -> None:
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    print(json.dumps({name: value}), flush=True)


class Person:
    """What the client does with what it is asked: as the lines of standard input say."""

    def __init__(self) -> None:
        self.commands: asyncio.Queue[str] = asyncio.Queue()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        tell("update", update)

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **more: Any) -> Any:
        shown = [option.model_dump(mode="json", by_alias=True, exclude_none=True) for option in options]
        call = tool_call.model_dump(mode="json", by_alias=True, exclude_none=True)
        tell("permission", {"sessionId": session_id, "toolCall": call, "options": shown, "_meta": more})
        try:
            command = await self.commands.get()
        except asyncio.CancelledError:
            tell("withdrawn", tool_call.tool_call_id)
            raise
        if command == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        kind = command.removeprefix("answer ")
        chosen = next((option.option_id for option in options if option.kind == kind), "allow_everything")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))


async def lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def main(url: str, key: str, load: str | None = None) -> None:
    person = Person()
    transport = await create_websocket_stream(f"{url}/acp", headers={"X-API-Key": key})
    connection = connect_to_agent(person, transport)
    info = Implementation(name="acp.py", version="1")
    capabilities = ClientCapabilities()
    hello = await connection.initialize(PROTOCOL_VERSION, client_capabilities=capabilities, client_info=info)
    tell("initialized", hello)
    session = load
    if load:
        await connection.load_session(cwd="/", mcp_servers=[], session_id=load)
    else:
        session = (await connection.new_session(cwd="/", mcp_servers=[])).session_id
    tell("session", session)
    reader = await lines()
    while line := (await reader.readline()).decode().strip():
        if line == "prompt":
            tell("prompt", await connection.prompt(session_id=session, prompt=[text_block("What waits?")]))
        elif line == "stop":
            await connection.cancel(session_id=session)
        else:
            person.commands.put_nowait(line)


asyncio.run(main(*sys.argv[1:]))
