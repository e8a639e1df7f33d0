"""The official Python client of both eras: `mcp` 2.x.

    python client2.py URL KEY STEPS_JSON [auto|legacy]

`legacy` shakes hands, `auto` (the default) probes first and falls back.
"""

from contextlib import asynccontextmanager

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import Implementation, PromptReference

from harness import TOTAL_S_MAX, main

CLIENT_INFO = Implementation(name="mcpproxy-test-client", version="1.0.0")


class Driver:
    def __init__(self, client):
        self._client = client
        self.about = {"protocolVersion": client.protocol_version}

    async def tools(self):
        return (await self._client.list_tools()).tools

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

    async def cancel(self, name, arguments):
        with anyio.CancelScope() as scope:

            async def on_progress(*_):
                scope.cancel()

            await self.call(name, arguments, on_progress)


@asynccontextmanager
async def open_client(url, key, arguments):
    mode = arguments[0] if arguments else "auto"
    async with httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=TOTAL_S_MAX) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, client_info=CLIENT_INFO) as client:
            yield Driver(client)


main(open_client)
