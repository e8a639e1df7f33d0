"""An identity provider on PyPI `authlib`, which shows no page: whoever comes by is logged in and has consented.

    python authlib_provider.py TOKEN_S

Any free port on the loopback interface. Prints `listening http://127.0.0.1:PORT`. Access tokens live TOKEN_S seconds. Other than
`oidc_provider.mjs`: metadata at the address of OpenID Connect alone, clients that must register themselves, a key without an
id, and tokens whose header names none. Ends with its standard input.
"""

import os
import sys
import threading
from dataclasses import dataclass

from authlib.common.security import generate_token
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from authlib.oauth2.rfc9207.parameter import IssuerParameter
from flask import Flask, jsonify, request
from joserfc.jwk import RSAKey
from werkzeug.serving import WSGIRequestHandler, make_server

USER = "ben"
CLAIMS = {"email": "ben@acme.example", "groups": ["dev"]}
SCOPES = {"mcp:read", "mcp:write"}
REFRESH_CHARS = 48

# http on the loopback interface is what these tests have
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
token_s = int(sys.argv[1])
key = RSAKey.generate_key(2048, auto_kid=False)
clients, codes, refresh_tokens = {}, {}, {}
issuer = None


class Client(ClientMixin):
    def __init__(self, client_id, metadata):
        self.client_id, self.metadata = client_id, metadata

    def get_client_id(self):
        return self.client_id

    def get_default_redirect_uri(self):
        return self.metadata["redirect_uris"][0]

    def get_allowed_scope(self, scope):
        return " ".join(sorted(SCOPES & set(scope.split()))) if scope else " ".join(sorted(SCOPES))

    def check_redirect_uri(self, redirect_uri):
        return redirect_uri in self.metadata["redirect_uris"]

    def check_endpoint_auth_method(self, method, endpoint):
        return method == "none"

    def check_response_type(self, response_type):
        return response_type == "code"

    def check_grant_type(self, grant_type):
        return grant_type in self.metadata["grant_types"]


class User:
    def get_user_id(self):
        return USER


@dataclass
class Code:
    client_id: str
    redirect_uri: str
    scope: str
    resource: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self):
        return self.redirect_uri

    def get_scope(self):
        return self.scope


@dataclass
class Refresh:
    client_id: str
    scope: str
    resource: str

    def check_client(self, client):
        return client.client_id == self.client_id

    def get_scope(self):
        return self.scope


class AuthorizationCodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]

    def save_authorization_code(self, code, request):
        asked = request.payload.data
        told = [asked.get(name) for name in ("resource", "code_challenge", "code_challenge_method")]
        codes[code] = Code(request.client.client_id, request.payload.redirect_uri, request.payload.scope, *told)

    def query_authorization_code(self, code, client):
        found = codes.get(code)
        return found if found and found.client_id == client.client_id else None

    def delete_authorization_code(self, authorization_code):
        for code in [code for code, found in codes.items() if found is authorization_code]:
            del codes[code]

    def authenticate_user(self, authorization_code):
        return User()


class RefreshTokenGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token):
        return refresh_tokens.get(refresh_token)

    def authenticate_user(self, refresh_token):
        return User()

    def revoke_old_credential(self, refresh_token):
        for token in [token for token, found in refresh_tokens.items() if found is refresh_token]:
            del refresh_tokens[token]


class Registration(ClientRegistrationEndpoint):
    def authenticate_token(self, request):
        return "anybody"

    def get_server_metadata(self):
        return {}

    def generate_client_secret(self, request):
        return ""

    def save_client(self, client_info, client_metadata, request):
        client = Client(client_info["client_id"], client_metadata)
        clients[client.client_id] = client
        return client


class Tokens(JWTBearerTokenGenerator):
    def get_jwks(self):
        return key

    def get_audiences(self, client, user, scope):
        return request.form.get("resource") or client.get_client_id()

    def get_extra_claims(self, client, grant_type, user, scope):
        return CLAIMS


class Issuer(IssuerParameter):
    def get_issuer(self):
        return issuer


def save_token(token, request):
    if "refresh_token" in token:
        resource = request.payload.data.get("resource")
        refresh_tokens[token["refresh_token"]] = Refresh(request.client.client_id, token.get("scope"), resource)


app = Flask(__name__)
server = AuthorizationServer(app, query_client=clients.get, save_token=save_token)
server.register_grant(AuthorizationCodeGrant, [CodeChallenge(required=True)])
server.register_grant(RefreshTokenGrant)
server.register_endpoint(Registration)
server.register_extension(Issuer())


@app.get("/.well-known/openid-configuration")
def metadata():
    return jsonify(
        issuer=issuer,
        authorization_endpoint=f"{issuer}/authorize",
        token_endpoint=f"{issuer}/token",
        registration_endpoint=f"{issuer}/register",
        jwks_uri=f"{issuer}/jwks",
        scopes_supported=sorted(SCOPES),
        response_types_supported=["code"],
        grant_types_supported=["authorization_code", "refresh_token"],
        subject_types_supported=["public"],
        id_token_signing_alg_values_supported=["RS256"],
        token_endpoint_auth_methods_supported=["none"],
        code_challenge_methods_supported=["S256"],
        authorization_response_iss_parameter_supported=True,
    )


@app.get("/jwks")
def jwks():
    return jsonify(keys=[key.as_dict(private=False, use="sig", alg="RS256")])


@app.get("/authorize")
def authorize():
    grant = server.get_consent_grant(end_user=User())
    return server.create_authorization_response(grant_user=User(), grant=grant)


@app.post("/token")
def token():
    return server.create_token_response()


@app.post("/register")
def register():
    return server.create_endpoint_response("client_registration")


class Quiet(WSGIRequestHandler):
    def log(self, *_):
        pass


def main():
    global issuer
    http = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    issuer = f"http://127.0.0.1:{http.server_port}"
    random = lambda *_, **__: generate_token(REFRESH_CHARS)  # noqa: E731
    generator = Tokens(issuer, refresh_token_generator=random, expires_generator=lambda *_: token_s)
    server.register_token_generator("default", generator)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    print(f"listening {issuer}", flush=True)
    sys.stdin.read()


main()
