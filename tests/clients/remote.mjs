// A client that knows stdio only, in front of `mcp-remote`: how many desktop programs reach a server over HTTP.
//
//   node remote.mjs URL KEY STEPS_JSON FOLDER
//
// FOLDER is for what `mcp-remote` keeps.

import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CLIENT_INFO, main } from './harness.mjs';

const REMOTE = fileURLToPath(new URL('node_modules/mcp-remote/dist/proxy.js', import.meta.url));

await main(({ url, key, args }) => {
  const client = new Client(CLIENT_INFO);
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [REMOTE, url.href, '--allow-http', '--transport', 'http-only', '--header', `X-API-Key:${key}`],
    env: { ...getDefaultEnvironment(), MCP_REMOTE_CONFIG_DIR: args[0] },
  });
  return {
    client,
    transport,
    call: (params, options) => client.callTool(params, undefined, options),
    describe: () => ({ era: 'legacy' }),
  };
});
