"""The official Python client of the handshake revisions: `mcp` 1.x.

    python client1.py URL KEY STEPS_JSON [ANSWER_JSON]

With an answer it declares that it shows forms, and answers each of them so, such as {"action": "decline"}; the report has
what it was asked. The step `listen` is in listen.py.
"""

import json
from contextlib import asynccontextmanager

import anyio
import httpx
import mcp.types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import AnyUrl

from harness import main
from listen import Stream
from login import Login

CLIENT_INFO = types.Implementation(name="mcpproxy-test-client", version="1.0.0")


class Traffic:
    """What this client tells nobody: the id of the last call, and whether its stream is open."""

    def __init__(self):
        self.id = None
        self.stream = Stream()

    def factory(self, **arguments) -> httpx.AsyncClient:
        client = create_mcp_http_client(**arguments)
        client.event_hooks["request"].append(self._note)
        client.event_hooks["response"].append(self.stream.on_response)
        return client

    async def _note(self, request):
        is_message = request.method == "POST" and request.headers["content-type"] == "application/json"
        message = json.loads(request.content) if is_message else {}
        if message.get("method") == "tools/call":
            self.id = message["id"]


class Driver:
    def __init__(self, session, traffic, login, about):
        self._session, self._traffic, self._login, self.about = session, traffic, login, about

    async def tools(self):
        return (await self._session.list_tools()).tools

    async def names(self, _):
        return [tool.name for tool in await self.tools()]

    async def listen(self, tell):
        await self._traffic.stream.listen(tell)

    async def offers(self, wanted):
        session = self._session
        reference = types.PromptReference(type="ref/prompt", name=wanted["prompt"])
        return {
            "prompts": await session.list_prompts(),
            "resources": await session.list_resources(),
            "templates": await session.list_resource_templates(),
            "prompt": await session.get_prompt(wanted["prompt"], {"n": "1"}),
            "contents": await session.read_resource(AnyUrl(wanted["uri"])),
            "completion": await session.complete(reference, {"name": "n", "value": "o"}),
        }

    async def call(self, name, arguments, on_progress):
        return await self._session.call_tool(name, arguments, progress_callback=on_progress)

    async def expire(self):
        return await self._login.expire()

    async def cancel(self, name, arguments):
        """This client has no cancellation of its own, but sends what it is given."""
        begun = anyio.Event()

        async def on_progress(*_):
            begun.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.call, name, arguments, on_progress)
            await begun.wait()
            params = types.CancelledNotificationParams(requestId=self._traffic.id, reason="enough")
            notification = types.CancelledNotification(method="notifications/cancelled", params=params)
            await self._session.send_notification(types.ClientNotification(notification))
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_client(url, key, arguments):
    traffic = Traffic()
    asked = []

    async def answer_form(_, params):
        asked.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        return types.ElicitResult.model_validate_json(arguments[0])

    login = None
    options = {"headers": {"X-API-Key": key}, "httpx_client_factory": traffic.factory}
    if key.startswith("{"):
        login = Login(url, key, httpx, lambda sent: (sent["code"], sent.get("state")))
        options |= {"headers": login.headers, "auth": login.auth}
    connect = streamablehttp_client(url, **options)
    handler = traffic.stream.on_message
    async with (
        connect as (read, write, _),
        ClientSession(
            read,
            write,
            client_info=CLIENT_INFO,
            message_handler=handler,
            elicitation_callback=answer_form if arguments else None,
        ) as session,
    ):
        greeting = await session.initialize()
        about = {"era": "legacy", "protocolVersion": greeting.protocolVersion, "asked": asked}
        about["login"] = login and login.report
        yield Driver(session, traffic, login, about)


main(open_client)
