"""An MCP client that retries as the protocol and the gateway's documents say, and never a write that may have run."""

import random
import time
import uuid
from collections import Counter

from wire import HANDSHAKE, MODERN, Answer, Lost, Refused, Wire

ITEM_S_MAX = 120
"""Longest that one item is tried for; then it has failed."""
RECORD_WAIT_S = 15
"""A call whose record is not there by then never will have one, so it did not run: the gateway commits a record within 10 s,
or refuses the call."""
UNKNOWN_WAIT_S_MAX = 90
"""Records of a replica that died are closed some 30 s later."""
RETRY_S = 0.25
NOT_RUN = {"overloaded", "rate_limited", "record_unavailable", "server_unavailable"}
"""Codes of refusals that say: nothing ran, come back."""


class Failed(Exception):
    """What a caller would see as a failure."""


class Client:
    def __init__(self, host: str, port: int, key: str, modern: bool, server: str) -> None:
        self.wire = Wire(host, port, key)
        self.reports = Wire(host, port, key)
        self.modern, self.server = modern, server
        self.session: str | None = None
        self.seen: Counter[str] = Counter()

    # the wire

    def _post(self, request_id: str, method: str, params: dict) -> Answer:
        headers = {"MCP-Protocol-Version": MODERN if self.modern else HANDSHAKE}
        if self.modern:
            headers["Mcp-Method"] = method
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
            prefix = "io.modelcontextprotocol/"
            params = params | {"_meta": {
                f"{prefix}protocolVersion": MODERN,
                f"{prefix}clientCapabilities": {},
                f"{prefix}clientInfo": {"name": "cluster-test", "version": "1"},
            }}
        elif self.session:
            headers["Mcp-Session-Id"] = self.session
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return self.wire.request("POST", "/mcp", body, headers)

    def _shake_hands(self) -> None:
        """`initialize` changes nothing, so it is retried whatever became of it."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "cluster-test", "version": "1"}}
        until = time.monotonic() + ITEM_S_MAX
        while time.monotonic() < until:
            try:
                answer = self._post(uuid.uuid4().hex, "initialize", params)
                if answer.status == 200:
                    self.session = answer.headers["Mcp-Session-Id"]
                    return
                self._pause(answer, f"initialize {answer.status}")
            except (Refused, Lost) as error:
                self._note(f"initialize {type(error).__name__.lower()}")
        raise Failed("no session to be had")

    def _note(self, what: str) -> None:
        self.seen[what] += 1
        time.sleep(RETRY_S * random.uniform(0.5, 1.5))

    def _pause(self, answer: Answer, what: str) -> None:
        self.seen[what] += 1
        time.sleep(min(answer.retry_after_s() or RETRY_S, 5))

    # calls

    def read(self, item: str, pause_ms: int = 0) -> tuple[str, list[str]]:
        return self._do("read", "read_item", {"item": item, "pause_ms": pause_ms})

    def write(self, item: str, pause_ms: int = 0) -> tuple[str, list[str]]:
        return self._do("write", "write_item", {"item": item, "pause_ms": pause_ms})

    def _do(self, variant: str, tool: str, arguments: dict) -> tuple[str, list[str]]:
        """How it came to be known that it is done (`answered`, or found out), and the ids of all attempts, the last
        being the one that did it."""
        attempts: list[str] = []
        until = time.monotonic() + ITEM_S_MAX
        while time.monotonic() < until:
            if not self.modern and not self.session:
                self._shake_hands()
            attempt = uuid.uuid4().hex
            attempts.append(attempt)
            outcome = self._attempt(attempt, variant, tool, arguments)
            if outcome == "lost" and variant == "write":
                outcome = self._find_out(attempt, arguments["item"])
            if outcome in ("answered", "recorded", "told by upstream"):
                return outcome, attempts
        raise Failed(f"{tool} {arguments['item']}: not done within {ITEM_S_MAX} s, {attempts}")

    def _attempt(self, attempt: str, variant: str, tool: str, arguments: dict) -> str:
        params = {
            "name": f"call_tool_{variant}",
            "arguments": {"name": f"{self.server}:{tool}", "args": arguments | {"attempt": attempt}},
        }
        try:
            answer = self._post(attempt, "tools/call", params)
        except Refused:
            self._note(f"{variant} refused")
            return "not run"
        except Lost as error:
            self._note(f"{variant} lost: {error}")
            return "lost"
        return self._judge(answer, variant, arguments["item"])

    def _judge(self, answer: Answer, variant: str, item: str) -> str:
        if answer.status == 404 and self.session:
            self.session = None
            self.seen["session 404"] += 1
            return "not run"
        if answer.status in (429, 503):
            self._pause(answer, f"{variant} {answer.status}")
            return "not run"
        result = answer.message.get("result")
        if answer.status != 200 or not isinstance(result, dict):
            raise Failed(f"{answer.status} {answer.message}")
        said = result.get("structuredContent") or {}
        if not result.get("isError"):
            if item not in result["content"][0]["text"]:
                raise Failed(f"another's answer: {result}")
            return "answered"
        code = said.get("code")
        if code in NOT_RUN:
            self._pause(answer, f"{variant} {code}")
            return "not run"
        if code in ("upstream_timeout", "upstream_lost"):
            self._note(f"{variant} {code}")
            return "lost"
        raise Failed(f"{result}")

    # a write whose answer was lost

    def _find_out(self, attempt: str, item: str) -> str:
        """What became of a write, from the activity log; where that cannot tell, from the server itself."""
        started = time.monotonic()
        while True:
            status = self._status_of(attempt)
            waited = time.monotonic() - started
            if status == "success":
                self.seen["write found in the log: success"] += 1
                return "recorded"
            if status == "none" and waited > RECORD_WAIT_S or status in ("rejected", "blocked"):
                self.seen[f"write found in the log: {status}"] += 1
                return "not run"
            if status in ("unknown", "error", "cancelled"):
                self.seen[f"write found in the log: {status}"] += 1
                return self._ask_upstream(item)
            if waited > UNKNOWN_WAIT_S_MAX:
                raise Failed(f"the record of {attempt} stays {status}")
            time.sleep(1)

    def _status_of(self, attempt: str) -> str:
        try:
            answer = self.reports.request("GET", f"/api/v1/activity?request_id={attempt}", None, {})
        except (Refused, Lost):
            return "not asked"
        if answer.status != 200:
            return "not asked"
        items = answer.message["items"]
        return items[0]["status"] if items else "none"

    def _ask_upstream(self, item: str) -> str:
        # the call may still be running there
        time.sleep(3)
        answers: list[str] = []
        until = time.monotonic() + ITEM_S_MAX
        while time.monotonic() < until and not answers:
            attempt = uuid.uuid4().hex
            params = {"name": "call_tool_read",
                      "arguments": {"name": f"{self.server}:was_written", "args": {"item": item, "attempt": attempt}}}
            try:
                answer = self._post(attempt, "tools/call", params)
                result = answer.message.get("result", {})
                if answer.status == 200 and not result.get("isError"):
                    answers.append(result["content"][0]["text"])
            except (Refused, Lost):
                pass
            time.sleep(RETRY_S)
        if not answers:
            raise Failed(f"nobody can say whether {item} was written")
        return "told by upstream" if answers[0] == "true" else "not run"
