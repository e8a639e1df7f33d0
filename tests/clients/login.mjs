// The login of an official client for JavaScript at an identity provider. All of it is the client's own but what every program
// that uses one brings: a place for its tokens, and a browser.

/** Where this client waits for its code; the browser here goes there in thought only. */
const REDIRECT = 'http://127.0.0.1:7777/callback';
/** Address of this client's metadata document, for providers that take one in the place of a registration. */
export const DOCUMENT = 'https://client.example/mcpproxy-test-client.json';
/** Redirects from the provider's page to the client. */
const REDIRECTS_MAX = 10;
/** Longest wait for the end of a token, in milliseconds. */
const EXPIRY_MS_MAX = 20_000;
/** Between two questions whether a token still counts, in milliseconds. */
const ASK_MS = 100;

const METADATA = {
  client_name: 'mcpproxy test client',
  redirect_uris: [REDIRECT],
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  token_endpoint_auth_method: 'none',
  application_type: 'native',
};

/** Metadata documents of clients, by address. */
export const CLIENTS = { [DOCUMENT]: { client_id: DOCUMENT, ...METADATA } };

/**
 * What the official clients ask their program for (`OAuthClientProvider`). With `document`, it has a metadata document; with
 * `scope`, it asks for that where the resource names none. `report` tells how often a person was sent to the provider and
 * tokens came, how the client became known there, and the ID token, if one came.
 */
export class Login {
  #client;
  #tokens;
  #verifier;
  #discovered;
  #callback;

  constructor({ document, name, scope }) {
    if (document) this.clientMetadataUrl = DOCUMENT;
    this.clientMetadata = { ...METADATA, client_name: name, scope };
    this.redirectUrl = REDIRECT;
    this.report = { logins: 0, tokens: 0, client_id: null, id_token: null };
  }

  state = () => crypto.randomUUID();
  clientInformation = () => this.#client;
  tokens = () => this.#tokens;
  codeVerifier = () => this.#verifier;
  discoveryState = () => this.#discovered;

  saveClientInformation(client) {
    this.#client = client;
    this.report.client_id = client.client_id;
  }

  saveTokens(tokens) {
    this.#tokens = tokens;
    this.report.tokens += 1;
    this.report.id_token = tokens.id_token ?? null;
  }

  saveCodeVerifier(verifier) {
    this.#verifier = verifier;
  }

  saveDiscoveryState(state) {
    this.#discovered = state;
  }

  async redirectToAuthorization(url) {
    this.report.logins += 1;
    const end = await browse(url, ({ href }) => href.startsWith(REDIRECT));
    if (end.response) throw new Error(`the provider showed a page: ${end.response.status} ${await end.response.text()}`);
    this.#callback = end.url.searchParams;
  }

  /** Parameters with which the provider sent the person back. */
  takeCallback() {
    const callback = this.#callback;
    this.#callback = undefined;
    return callback;
  }

  /** Waits until a server refuses the token that the client has. */
  async expire(url) {
    const deadline = Date.now() + EXPIRY_MS_MAX;
    const headers = { authorization: `Bearer ${this.#tokens.access_token}` };
    for (;;) {
      const response = await fetch(url, { headers });
      await response.body?.cancel();
      if (response.status === 401) return {};
      if (Date.now() > deadline) throw new Error(`the token still counts: ${response.status}`);
      await new Promise((resolve) => setTimeout(resolve, ASK_MS));
    }
  }
}

/**
 * Follows redirects as a browser does, with cookies, until one leads to where `isOver` says, or a page is shown: returns its
 * address and, of a page, the response.
 */
export async function browse(start, isOver = () => false) {
  const jar = new Map();
  let url = new URL(start);
  for (let count = 0; count < REDIRECTS_MAX; count += 1) {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(url, { redirect: 'manual', headers: { cookie } });
    for (const set of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(set);
      jar.set(name, value);
    }
    const next = response.headers.get('location');
    if (next === null) return { url, response };
    await response.body?.cancel();
    url = new URL(next, url);
    if (isOver(url)) return { url };
  }
  throw new Error('the provider redirects for ever');
}
