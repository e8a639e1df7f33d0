"""The official Python client of both eras: `mcp` 2.x.

    python client2.py URL KEY STEPS_JSON [auto|legacy [ANSWER_JSON]]

`legacy` shakes hands, `auto` (the default) probes first and falls back. With an answer it declares that it shows forms,
and answers each of them so, such as {"action": "decline"}; the report has what it was asked. The step `listen` is in
listen.py.
"""

from contextlib import asynccontextmanager

import anyio
import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult, Implementation, PromptReference

from harness import TOTAL_S_MAX, main
from listen import AGAIN_S, LISTEN_S_MAX, Stream
from login import Login

CLIENT_INFO = Implementation(name="mcpproxy-test-client", version="1.0.0")


MODERN = "2026-07-28"


class Driver:
    def __init__(self, client, stream, login, asked):
        self._client, self._stream, self._login = client, stream, login
        self.about = {"protocolVersion": client.protocol_version, "asked": asked}
        self.about["login"] = login and login.report

    async def tools(self):
        return (await self._client.list_tools()).tools

    async def names(self, fresh):
        listed = await self._client.list_tools(cache_mode="refresh" if fresh else "use")
        return [tool.name for tool in listed.tools]

    async def listen(self, tell):
        if self._client.protocol_version != MODERN:
            return await self._stream.listen(tell)
        wanted = {f"{what}_list_changed": True for what in ("tools", "prompts", "resources")}
        while True:
            try:
                async with self._client.listen(**wanted) as subscription:
                    tell("READY")
                    async for event in subscription:
                        tell("CHANGED", type(event).__name__.removesuffix("ListChanged").lower())
                tell("LOST", "graceful")
            except Exception as error:
                tell("LOST", type(error).__name__)
            await anyio.sleep(AGAIN_S)

    async def offers(self, wanted):
        session = self._client
        reference = PromptReference(type="ref/prompt", name=wanted["prompt"])
        return {
            "prompts": await session.list_prompts(),
            "resources": await session.list_resources(),
            "templates": await session.list_resource_templates(),
            "prompt": await session.get_prompt(wanted["prompt"], {"n": "1"}),
            "contents": await session.read_resource(wanted["uri"]),
            "completion": await session.complete(reference, {"name": "n", "value": "o"}),
        }

    async def call(self, name, arguments, on_progress):
        return await self._client.call_tool(name, arguments, progress_callback=on_progress)

    async def expire(self):
        return await self._login.expire()

    async def cancel(self, name, arguments):
        with anyio.CancelScope() as scope:

            async def on_progress(*_):
                scope.cancel()

            await self.call(name, arguments, on_progress)


@asynccontextmanager
async def open_client(url, key, arguments):
    mode, answer = (*arguments, *("auto", None)[len(arguments) :])
    asked = []

    async def answer_form(_, params):
        asked.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        return ElicitResult.model_validate_json(answer)

    stream = Stream()
    login = None
    options = {"headers": {"X-API-Key": key}, "timeout": TOTAL_S_MAX + LISTEN_S_MAX}
    if key.startswith("{"):
        login = Login(url, key, httpx2, AuthorizationCodeResult.model_validate)
        options |= {"headers": login.headers, "auth": login.auth}
    hooks = {"response": [stream.on_response]}
    async with httpx2.AsyncClient(**options, event_hooks=hooks) as http:
        transport = streamable_http_client(url, http_client=http)
        about = {"client_info": CLIENT_INFO, "elicitation_callback": answer_form if answer else None}
        async with Client(transport, mode=mode, message_handler=stream.on_message, **about) as client:
            yield Driver(client, stream, login, asked)


main(open_client)
