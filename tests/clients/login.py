"""The login of an official client for Python at an identity provider.

All of it is the client's own but what every program that uses one brings: a place for its tokens, and a browser. The counterpart
for JavaScript, with the client's metadata document, is login.mjs.
"""

import asyncio
import json
import time
from urllib.parse import parse_qs, urljoin, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata

REDIRECT = "http://127.0.0.1:7777/callback"
DOCUMENT = "https://client.example/mcpproxy-test-client.json"
REDIRECTS_MAX = 10
EXPIRY_S_MAX = 20
ASK_S = 0.1


class Login:
    """What a program gives an official client that logs in; `report` tells how often a person was sent to the provider and
    tokens came, and how the client became known there.

    `key` is a JSON object such as {"name": "x", "document": true}, `http` the library of the client's requests, and `callback`
    makes of the parameters with which the provider sends the person back what the client takes.
    """

    def __init__(self, url, key, http, callback):
        options = json.loads(key)
        self.headers = {"X-Test-Client": options["name"]}
        self.report = {"logins": 0, "tokens": 0, "client_id": None}
        self._url, self._http, self._callback = url, http, callback
        self._tokens = self._client = self._returned = None
        metadata = OAuthClientMetadata(
            client_name=options["name"],
            redirect_uris=[REDIRECT],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
        )
        self.auth = OAuthClientProvider(
            server_url=url,
            client_metadata=metadata,
            storage=self,
            redirect_handler=self._browse,
            callback_handler=self._return,
            client_metadata_url=DOCUMENT if options.get("document") else None,
        )

    async def get_tokens(self):
        return self._tokens

    async def set_tokens(self, tokens):
        self._tokens = tokens
        self.report["tokens"] += 1

    async def get_client_info(self):
        return self._client

    async def set_client_info(self, client):
        self._client = client
        self.report["client_id"] = client.client_id

    async def _browse(self, url):
        """Follows redirects as a browser does, with cookies, until one leads to the client."""
        self.report["logins"] += 1
        async with self._http.AsyncClient() as browser:
            for _ in range(REDIRECTS_MAX):
                response = await browser.get(url, follow_redirects=False)
                if "location" not in response.headers:
                    raise RuntimeError(f"the provider showed a page: {response.status_code} {response.text}")
                url = urljoin(url, response.headers["location"])
                if url.startswith(REDIRECT):
                    self._returned = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
                    return
        raise RuntimeError("the provider redirects for ever")

    async def _return(self):
        if "code" not in self._returned:
            raise RuntimeError(f"no code: {self._returned}")
        return self._callback(self._returned)

    async def expire(self):
        """Waits until the server refuses the token that the client has."""
        deadline = time.monotonic() + EXPIRY_S_MAX
        headers = {"Authorization": f"Bearer {self._tokens.access_token}"}
        async with self._http.AsyncClient(headers=headers) as http:
            while (status := (await http.get(self._url)).status_code) != 401:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the token still counts: {status}")
                await asyncio.sleep(ASK_S)
        return {}
