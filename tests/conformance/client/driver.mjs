// A client of the official suite's client scenarios for authorisation: an administrator and a person of a gateway, for whom the
// suite's server is the one behind the gateway. The suite runs it with that server's URL.
//
// GATEWAY, ADMIN_KEY and PUBLIC_URL name a gateway, an admin's key there, and the URL that browsers come back to.
import { randomBytes } from 'node:crypto';

const [, , url] = process.argv;
const { GATEWAY, ADMIN_KEY, PUBLIC_URL } = process.env;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const LOGINS_MAX = 3;
const name = `c-${randomBytes(8).toString('hex')}`;

/** Sends a request to the gateway's API. */
async function api(method, path, body) {
  const headers = { 'X-API-Key': ADMIN_KEY, ...(body ? { 'Content-Type': 'application/json' } : {}) };
  const answer = await fetch(`${GATEWAY}/api/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  return { status: answer.status, body: text ? JSON.parse(text) : null };
}

async function expect(method, path, body) {
  const answer = await api(method, path, body);
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** Looks up the issuer that the server names, as an administrator does who has a client there. */
async function issuer() {
  const answer = await fetch(url, { method: 'POST', headers: { Accept: 'application/json, text/event-stream' } });
  const named = /resource_metadata="([^"]+)"/.exec(answer.headers.get('www-authenticate') ?? '')?.[1];
  const { origin, pathname } = new URL(url);
  const metadata = await fetch(named ?? `${origin}/.well-known/oauth-protected-resource${pathname}`);
  return (await metadata.json()).authorization_servers[0];
}

/** Logs in: the suite's authorization server agrees at once. */
async function logIn() {
  const program = 'http://127.0.0.1:9/done';
  const begin = { redirect_uri: program, for_listing: true };
  let begun = await api('POST', `/servers/${name}/connections`, begin);
  if (begun.body?.error?.code === 'upstream_auth_changed') {
    // the administrator confirms the authorization server that the server names now
    await expect('PUT', `/servers/${name}/oauth`, login);
    begun = await api('POST', `/servers/${name}/connections`, begin);
  }
  if (begun.status !== 201) throw new Error(`no login: ${JSON.stringify(begun.body)}`);
  begun = begun.body;
  let place = begun.url;
  for (let hops = 0; hops < 10; hops += 1) {
    const answer = await fetch(place, { redirect: 'manual' });
    const next = answer.headers.get('location');
    if (!next) throw new Error(`the browser is left at ${place} with ${answer.status}`);
    place = next.startsWith(PUBLIC_URL) ? GATEWAY + next.slice(PUBLIC_URL.length) : next;
    if (place.startsWith(program)) break;
  }
  const code = new URL(place).searchParams.get('code');
  if (!code) throw new Error(`the login failed: ${place}`);
  await expect('POST', `/servers/${name}/connections/claim`, { claim_token: code });
}

const login = { kind: 'authorization_code' };
await expect('POST', '/servers', { name, kind: 'http', url, auto_approve: true });
if (context.client_id) {
  Object.assign(login, { client_id: context.client_id, issuer: await issuer() });
  if (context.client_secret) login.client_secret = context.client_secret;
}
await expect('PUT', `/servers/${name}/oauth`, login);
await logIn();
const listed = async () => (await expect('GET', `/servers/${name}/tools`)).items;
let tools = await listed();
for (let logins = 1; ; logins += 1) {
  if (tools.length === 0) {
    await api('POST', `/servers/${name}/refresh`);
    tools = await listed();
  }
  if (tools.length > 0) {
    const [tool] = tools;
    const called = await api('POST', '/tools/call', { name: `${name}:${tool.name}`, tool_variant: 'call_tool_write', args: {} });
    if (called.status < 300) break;
    if (called.body?.error?.code !== 'upstream_login_required') throw new Error(JSON.stringify(called.body));
  }
  if (logins >= LOGINS_MAX) throw new Error('the server goes on asking for logins');
  await logIn();
}
