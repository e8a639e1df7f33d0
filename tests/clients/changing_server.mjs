// An MCP server on the official SDK 1.x whose tool `grow` adds another tool, in every session, and announces it.
//
//   node changing_server.mjs
//
// Any free port on the loopback interface. Prints `listening http://127.0.0.1:PORT/mcp` when it is ready; ends
// with its standard input.

import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';

/** Sessions at the same time. */
const SESSIONS_MAX = 32;

const sessions = new Map();
let hasGrown = false;

function text(value) {
  return async () => ({ content: [{ type: 'text', text: value }] });
}

function addGrown(server) {
  server.registerTool('grown', { description: 'Came later', annotations: { readOnlyHint: true } }, text('here'));
}

function newServer() {
  const server = new McpServer({ name: 'changing', version: '1.0.0' });
  server.registerTool('grow', { description: 'Adds a tool', annotations: { readOnlyHint: true } }, async () => {
    if (!hasGrown) {
      hasGrown = true;
      for (const { server: one } of sessions.values()) addGrown(one);
    }
    return { content: [] };
  });
  if (hasGrown) addGrown(server);
  return server;
}

async function open() {
  if (sessions.size >= SESSIONS_MAX) throw new Error('too many sessions');
  const server = newServer();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id) => sessions.set(id, { server, transport }),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await server.connect(transport);
  return transport;
}

const listener = http.createServer(async (request, response) => {
  const id = request.headers['mcp-session-id'];
  const known = sessions.get(id)?.transport;
  if (id !== undefined && known === undefined) {
    response.writeHead(404).end();
    return;
  }
  await (known ?? (await open())).handleRequest(request, response);
});

process.stdin.resume().on('end', () => process.exit(0));
listener.listen(0, '127.0.0.1', () => console.log(`listening http://127.0.0.1:${listener.address().port}/mcp`));
