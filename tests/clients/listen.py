"""The step `listen`: the same steps and lines as in listen.mjs.

A client's `listen(tell)` calls `tell("READY")`, `tell("CHANGED", "tools")` and `tell("LOST", why)` until it is
cancelled; `names(fresh)` gives the tools' names, past the client's own cache if they are to be fresh.
"""

import json
import math
import time

import anyio

LISTEN_S_MAX = 120
# lists that are still to be asked for; one that is not told of waits for the next
EVENTS_MAX = 1000
# a list that fails, as it may where a replica has just died, is asked for so often, with such pauses in seconds
LIST_TRIES_MAX = 10
AGAIN_S = 0.1
LISTS = ("tools", "prompts", "resources")


def _now():
    return int(time.time() * 1000)


def _say(word, *rest):
    print(word, _now(), *rest, flush=True)


def listening(steps):
    """The seconds that the steps listen, all together."""
    return sum(min(step["listen"]["seconds"], LISTEN_S_MAX) for step in steps if "listen" in step)


async def listen(client, wanted):
    """Runs one step."""
    heard = []
    events, coming = anyio.create_memory_object_stream(EVENTS_MAX)

    def tell(word, *rest):
        _say(word, *rest)
        if word == "CHANGED":
            heard.append({"list": rest[0], "at": _now()})
        if word != "LOST":
            events.send_nowait(word)

    async def relist():
        changes = 0
        while changes < wanted.get("notices", math.inf):
            word = await coming.receive()
            changes += word == "CHANGED"
            for _ in range(LIST_TRIES_MAX):
                try:
                    _say("TOOLS", json.dumps(await client.names(word == "READY")))
                    break
                except Exception as error:
                    _say("FAILED", type(error).__name__)
                    await anyio.sleep(AGAIN_S)

    with anyio.move_on_after(min(wanted["seconds"], LISTEN_S_MAX)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.listen, tell)
            await relist()
            tasks.cancel_scope.cancel()
    return {"notices": heard}


class Stream:
    """The stream that a client of the handshake revisions opens by itself: whether it is open, and what comes on it."""

    def __init__(self):
        self._open, self._tell = False, None

    async def on_response(self, response):
        """A hook of the HTTP client."""
        if response.request.method == "GET" and response.status_code == 200:
            self._open = True
            if self._tell:
                self._tell("READY")

    async def on_message(self, message):
        """What the client does with messages that nobody asked for."""
        method = getattr(getattr(message, "root", message), "method", None) or ""
        changed = method.removeprefix("notifications/").removesuffix("/list_changed")
        if self._tell and changed in LISTS:
            self._tell("CHANGED", changed)

    async def listen(self, tell):
        """Tells until it is cancelled."""
        self._tell = tell
        if self._open:
            tell("READY")
        try:
            await anyio.sleep_forever()
        finally:
            self._tell = None
