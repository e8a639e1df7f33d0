// Serves a stdio MCP server as streamable HTTP on the loopback interface.
//
//   node bridge.mjs --port PORT [--exit-on-stdin-close] -- COMMAND [ARGUMENT…]
//
// Port 0 takes any free one. When it is ready it prints one line on stdout:
// `listening http://127.0.0.1:PORT/mcp`. Every session has a child of its own,
// so request ids need no translation and one client cannot disturb another.
// It speaks the handshake revisions only, like the servers it is meant for.

import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { errorText, StdioSession } from './stdio_session.mjs';

/** Largest request body, in bytes. */
const BODY_BYTES_MAX = 16 * 1024 * 1024;
/** Sessions, and so children, at the same time. The idle one used longest ago makes room. */
const SESSIONS_MAX = 32;
/** Client connections at the same time. */
const CONNECTIONS_MAX = 512;

const PROTOCOL_VERSIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];
const LOOPBACK_NAMES = ['127.0.0.1', 'localhost', '[::1]'];
const USAGE = 'usage: node bridge.mjs --port PORT [--exit-on-stdin-close] -- COMMAND [ARGUMENT...]';

/** What the client did wrong: an HTTP status and a JSON-RPC error. */
class Refusal extends Error {
  constructor(status, code, message, id = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.id = id;
  }
}

function parseArguments(argv) {
  const options = { port: undefined, exitOnStdinClose: false, command: undefined, args: [] };
  for (let i = 0; i < argv.length; i += 1) {
    if (argv[i] === '--port') {
      i += 1;
      options.port = /^\d{1,5}$/.test(argv[i] ?? '') ? Number(argv[i]) : undefined;
    } else if (argv[i] === '--exit-on-stdin-close') {
      options.exitOnStdinClose = true;
    } else if (argv[i] === '--') {
      [options.command, ...options.args] = argv.slice(i + 1);
      break;
    } else {
      return undefined;
    }
  }
  const complete = options.port !== undefined && options.port <= 65_535 && options.command !== undefined;
  return complete ? options : undefined;
}

function hostName(authority) {
  return (authority ?? '').replace(/:\d+$/, '').toLowerCase();
}

// A page in a browser can reach loopback; neither check lets it through.
function checkOrigin(request) {
  if (!LOOPBACK_NAMES.includes(hostName(request.headers.host))) {
    throw new Refusal(403, -32600, 'this host is not served');
  }
  const { origin } = request.headers;
  if (origin === undefined) return;
  if (!LOOPBACK_NAMES.includes(hostName(origin.replace(/^https?:\/\//, '')))) {
    throw new Refusal(403, -32600, 'this origin is not allowed');
  }
}

function checkPost(request) {
  const contentType = (request.headers['content-type'] ?? '').split(';')[0].trim().toLowerCase();
  if (contentType !== 'application/json') throw new Refusal(415, -32600, 'the body must be application/json');
  if (!accepts(request, 'application/json')) throw new Refusal(406, -32600, 'the client must accept application/json');
}

function checkVersion(request) {
  const version = request.headers['mcp-protocol-version'];
  if (version === undefined || PROTOCOL_VERSIONS.includes(version)) return;
  // -32000: no code that a client of a later revision could take for its own.
  throw new Refusal(400, -32000, `unsupported protocol version; supported: ${PROTOCOL_VERSIONS.join(', ')}`);
}

function accepts(request, type) {
  const accept = request.headers.accept ?? '*/*';
  return accept.includes(type) || accept.includes('*/*') || accept.includes(`${type.split('/')[0]}/*`);
}

async function readBody(request) {
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) throw new Refusal(413, -32600, 'the body is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function parseMessage(body) {
  let message;
  try {
    message = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw new Refusal(400, -32700, 'the body is not JSON');
  }
  if (message === null || typeof message !== 'object' || Array.isArray(message)) {
    throw new Refusal(400, -32600, 'the body must be one JSON-RPC message');
  }
  if (message.jsonrpc !== '2.0') throw new Refusal(400, -32600, 'jsonrpc must be "2.0"');
  const idIsValid = message.id === undefined || ['string', 'number'].includes(typeof message.id);
  if (!idIsValid) throw new Refusal(400, -32600, 'id must be a string or a number');
  return message;
}

/** The sessions by their id, the one used longest ago first. */
class Sessions {
  #sessions = new Map();
  #stopping = false;

  constructor(command, args) {
    this.command = command;
    this.args = args;
  }

  open() {
    if (this.#stopping) throw new Refusal(503, -32603, 'the bridge is stopping');
    if (this.#sessions.size >= SESSIONS_MAX) this.#makeRoom();
    const id = randomUUID();
    const session = new StdioSession(this.command, this.args, () => this.#sessions.delete(id));
    this.#sessions.set(id, session);
    return { id, session };
  }

  find(id) {
    const session = this.#sessions.get(id);
    if (session === undefined) throw new Refusal(404, -32001, 'session not found');
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    return session;
  }

  close(id) {
    const session = this.find(id);
    this.#sessions.delete(id);
    return session.stop();
  }

  async stopAll() {
    this.#stopping = true;
    await Promise.all([...this.#sessions.values()].map((session) => session.stop()));
  }

  killAll() {
    for (const session of this.#sessions.values()) session.kill();
  }

  #makeRoom() {
    for (const [id, session] of this.#sessions) {
      if (session.busy) continue;
      void this.close(id);
      return;
    }
    throw new Refusal(503, -32603, 'too many sessions are busy');
  }
}

async function handlePost(request, response, sessions) {
  checkPost(request);
  const body = await readBody(request);
  const message = parseMessage(body);
  const isRequest = message.method !== undefined && message.id !== undefined;
  const session = sessionFor(request, response, message, sessions);
  if (!isRequest) {
    session.send(message, body);
    response.writeHead(202).end();
    return;
  }
  const problem = session.request(message, body, response, accepts(request, 'text/event-stream'));
  if (problem !== undefined) throw new Refusal(400, -32600, problem, message.id);
}

function sessionFor(request, response, message, sessions) {
  const id = request.headers['mcp-session-id'];
  if (id !== undefined) {
    checkVersion(request);
    return sessions.find(id);
  }
  if (message.method !== 'initialize' || message.id === undefined) {
    throw new Refusal(400, -32000, 'no session: start with initialize', message.id);
  }
  const opened = sessions.open();
  response.setHeader('mcp-session-id', opened.id);
  return opened.session;
}

async function handle(request, response, sessions) {
  checkOrigin(request);
  if (request.url.split('?')[0] !== '/mcp') throw new Refusal(404, -32600, 'not found');
  if (request.method === 'POST') {
    await handlePost(request, response, sessions);
  } else if (request.method === 'DELETE') {
    await sessions.close(request.headers['mcp-session-id']);
    response.writeHead(204).end();
  } else {
    response.setHeader('allow', 'POST, DELETE');
    throw new Refusal(405, -32600, 'method not allowed');
  }
}

function refuse(response, error) {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const refusal = error instanceof Refusal ? error : new Refusal(500, -32603, 'internal error');
  const text = errorText(refusal.id, refusal.code, refusal.message);
  // The rest of a body that was not read must not be taken for the next request.
  if (refusal.status === 413) response.setHeader('connection', 'close');
  response.writeHead(refusal.status, { 'content-type': 'application/json' }).end(text);
}

function main() {
  const options = parseArguments(process.argv.slice(2));
  if (options === undefined) {
    process.stderr.write(`${USAGE}\n`);
    process.exit(2);
  }
  const sessions = new Sessions(options.command, options.args);
  const server = http.createServer((request, response) => {
    handle(request, response, sessions).catch((error) => refuse(response, error));
  });
  server.maxConnections = CONNECTIONS_MAX;
  server.requestTimeout = 60_000;

  let stopping = false;
  const stop = async () => {
    if (stopping) return;
    stopping = true;
    server.close();
    await sessions.stopAll();
    server.closeAllConnections();
    process.exit(0);
  };
  for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(name, stop);
  process.on('exit', () => sessions.killAll());
  if (options.exitOnStdinClose) {
    process.stdin.on('end', stop).on('close', stop).on('error', stop).resume();
  }

  server.on('error', (error) => {
    process.stderr.write(`cannot listen on 127.0.0.1:${options.port}: ${error.code}\n`);
    process.exit(1);
  });
  server.listen(options.port, '127.0.0.1', () => {
    process.stdout.write(`listening http://127.0.0.1:${server.address().port}/mcp\n`);
  });
}

main();
