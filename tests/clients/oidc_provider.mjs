// An identity provider on npm `oidc-provider`, which shows no page: whoever comes by is logged in and has consented.
//
//   node oidc_provider.mjs TOKEN_S [--no-documents]
//
// Any free port on the loopback interface. Access tokens live TOKEN_S seconds; they are JWTs (`at+jwt`) for the resource
// that was asked for. Clients register themselves (RFC 7591) or, without `--no-documents`, name their metadata document;
// the documents of `CLIENTS` are known here, and no other is fetched. The client `robot` gets tokens of its own, with its secret, and
// tokens in exchange for those of people (RFC 8693).
//
// Prints `listening http://127.0.0.1:PORT`, and then a line of JSON for each answer: {"method", "path", "status", "params",
// "agent"}, the parameters being those of the query and the body. Takes a line of standard input at a time and answers it with
// {"done": LINE}:
//
//   rotate     signs with a new key from now on; the old one stays in the key set
//   withdraw   takes all keys but the newest from the key set
//   down       cuts all connections, and each new one, until `up`
//
// Ends with its standard input.

import { createPublicKey, generateKeyPairSync, randomUUID, verify } from 'node:crypto';
import http from 'node:http';
import { createInterface } from 'node:readline';
import Provider, { errors } from 'oidc-provider';
import { CLIENTS } from './login.mjs';

const PERSON = 'ana';
const CLAIMS = { email: 'ana@acme.example', groups: ['dev', 'ops'] };
/** Scopes of the gateway; all of them are for whoever asks for none. */
const SCOPES = 'mcp:read mcp:write';

const tokenS = Number(process.argv[2]);
if (!(tokenS > 0)) throw new Error('usage: node oidc_provider.mjs TOKEN_S [--no-documents]');
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const ROBOT = {
  client_id: 'robot',
  client_secret: 'secret-of-the-robot',
  grant_types: ['client_credentials', EXCHANGE],
  redirect_uris: [],
  response_types: [],
};
const takesDocuments = process.argv[3] !== '--no-documents';

let keys = [newKey()];
let provider;
let isDown = false;

function newKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), alg: 'RS256', use: 'sig' };
}

function say(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

// Metadata documents of clients, which have an address that exists in these tests alone.
async function fetchDocument(url) {
  const document = CLIENTS[String(url)];
  return document === undefined ? new Response(null, { status: 404 }) : Response.json(document);
}

// The provider denies a login without scopes, and clients ask for none where the resource names none.
async function defaultScope(context, next) {
  if (context.path === '/auth' && context.query.scope === undefined) context.query = { ...context.query, scope: SCOPES };
  return next();
}

async function note(context, next) {
  const asked = { ...context.query };
  await next();
  const { method, path, status } = context;
  const params = { ...asked, ...context.oidc?.body };
  say({ method, path, status, params, agent: context.get('user-agent') });
}

// Claims of an access token of this provider that has not ended.
function claimsOf(token) {
  const [header, payload, signature] = token.split('.');
  const part = (text) => JSON.parse(Buffer.from(text, 'base64url'));
  const jwk = keys.find(({ kid }) => kid === part(header).kid);
  const { kty, n, e } = jwk ?? {};
  const signed = Buffer.from(`${header}.${payload}`);
  const isGood = jwk && verify('RSA-SHA256', signed, createPublicKey({ key: { kty, n, e }, format: 'jwk' }), Buffer.from(signature, 'base64url'));
  const claims = part(payload);
  if (!isGood || claims.exp * 1000 < Date.now()) throw new errors.InvalidRequest('subject_token is not valid');
  return claims;
}

const EXCHANGE_PARAMS = ['subject_token', 'subject_token_type', 'requested_token_type'];

// Gives a token of the same person for the resource that is asked for. The provider leaves this grant to those who use it.
async function exchange(context) {
  const { client, params } = context.oidc;
  if (params.subject_token_type !== ACCESS_TOKEN) throw new errors.InvalidRequest('subject_token_type');
  const { sub } = claimsOf(params.subject_token);
  const token = new provider.AccessToken({ accountId: sub, client, gty: 'token_exchange', scope: params.scope });
  token.resourceServer = new provider.ResourceServer(params.resource, resourceServer(params.resource));
  context.body = {
    access_token: await token.save(),
    issued_token_type: ACCESS_TOKEN,
    token_type: 'Bearer',
    expires_in: token.expiration,
    scope: params.scope,
  };
}

function resourceServer(audience) {
  return { scope: SCOPES, audience, accessTokenTTL: tokenS, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } };
}

// What is not said here is left to the provider: `iss`, S256 as the only kind of PKCE, rotation of refresh tokens.
function newProvider(issuer) {
  const made = new Provider(issuer, {
    jwks: { keys },
    cookies: { keys: ['cookies of a test'] },
    pkce: { required: () => true },
    clients: [ROBOT],
    clientDefaults: { grant_types: ['authorization_code', 'refresh_token'] },
    scopes: ['openid', 'offline_access', 'email', 'mcp:read', 'mcp:write'],
    claims: { openid: ['sub'], email: ['email'] },
    ttl: { AccessToken: tokenS, ClientCredentials: tokenS, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600, IdToken: tokenS },
    fetch: fetchDocument,
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      clientIdMetadataDocument: { enabled: takesDocuments, ack: 'draft-02' },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, audience) => resourceServer(audience),
      },
    },
    extraTokenClaims: (_, token) => (token.kind === 'AccessToken' ? CLAIMS : undefined),
    issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...CLAIMS }) }),
    interactions: { url: (_, interaction) => `/log-in/${interaction.uid}` },
  });
  made.registerGrantType(EXCHANGE, exchange, [...EXCHANGE_PARAMS, 'resource', 'scope']);
  made.use(note);
  made.use(defaultScope);
  made.on('server_error', (_, error) => process.stderr.write(`${error.stack}\n`));
  return made;
}

// The person logs in, and consents to all that the client asks for.
async function logIn(request, response) {
  const { params, prompt } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    return provider.interactionFinished(request, response, { login: { accountId: PERSON } });
  }
  const grant = new provider.Grant({ accountId: PERSON, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? 'openid');
  for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, SCOPES);
  const result = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
}

const server = http.createServer(async (request, response) => {
  try {
    if (request.url.startsWith('/log-in/')) await logIn(request, response);
    else await provider.callback()(request, response);
  } catch (error) {
    process.stderr.write(`${error.stack}\n`);
    response.writeHead(500).end();
  }
});
server.on('connection', (socket) => {
  if (isDown) socket.destroy();
});

const COMMANDS = {
  rotate: () => {
    keys = [newKey(), ...keys];
    provider = newProvider(server.issuer);
  },
  withdraw: () => {
    keys = keys.slice(0, 1);
    provider = newProvider(server.issuer);
  },
  down: () => {
    isDown = true;
    server.closeAllConnections();
  },
  up: () => {
    isDown = false;
  },
};

createInterface({ input: process.stdin })
  .on('line', (line) => {
    COMMANDS[line]();
    say({ done: line });
  })
  .on('close', () => process.exit(0));

server.listen(0, '127.0.0.1', () => {
  server.issuer = `http://127.0.0.1:${server.address().port}`;
  provider = newProvider(server.issuer);
  process.stdout.write(`listening ${server.issuer}\n`);
});
