"""One HTTP request of an MCP client, and what can become of it."""

import http.client
import json
from dataclasses import dataclass, field

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
ANSWER_WAIT_S_MAX = 40
"""Longer than a server drains."""


class Refused(Exception):
    """No connection: nothing was sent."""


class Lost(Exception):
    """The connection ended after something was sent and before the answer was whole."""


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    message: dict = field(default_factory=dict)

    def retry_after_s(self) -> float | None:
        text = self.headers.get("Retry-After")
        return float(text) if text else None


def _message(headers: http.client.HTTPMessage, body: bytes) -> dict:
    text = body.decode()
    if headers.get_content_type() == "text/event-stream":
        data = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
        if not data:
            raise Lost("a stream without an answer")
        text = data[-1]
    try:
        return json.loads(text)
    except ValueError:
        return {"text": text}


class Wire:
    """A connection that is made when it is needed, and kept."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self.host, self.port, self.key = host, port, key
        self.connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None

    def request(self, method: str, path: str, body: dict | None, headers: dict[str, str]) -> Answer:
        if self.connection is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_WAIT_S_MAX)
            try:
                connection.connect()
            except OSError as error:
                raise Refused(repr(error)) from error
            self.connection = connection
        sent = {"X-API-Key": self.key, "Accept": "application/json, text/event-stream", **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            self.connection.request(method, path, json.dumps(body) if body is not None else None, sent)
            response = self.connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Lost(repr(error)) from error
        if response.will_close:
            self.close()
        return Answer(response.status, response.headers, _message(response.headers, content))
