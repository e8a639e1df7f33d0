// The official TypeScript client of the handshake revisions: `@modelcontextprotocol/sdk`.
//
//   node sdk1.mjs URL KEY STEPS_JSON
//
// The step `listen` is in listen.mjs.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  PromptListChangedNotificationSchema,
  ResourceListChangedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { CLIENT_INFO, main } from './harness.mjs';

const CHANGED = {
  tools: ToolListChangedNotificationSchema,
  prompts: PromptListChangedNotificationSchema,
  resources: ResourceListChangedNotificationSchema,
};

await main(({ url, requestInit, fetch }) => {
  const client = new Client(CLIENT_INFO);
  const transport = new StreamableHTTPClientTransport(url, { requestInit, fetch });
  return {
    client,
    transport,
    call: (params, options) => client.callTool(params, undefined, options),
    onChanged: (list, told) => client.setNotificationHandler(CHANGED[list], told),
    describe: () => ({
      era: 'legacy',
      protocolVersion: transport.protocolVersion ?? null,
      sessionId: transport.sessionId ?? null,
    }),
  };
});
