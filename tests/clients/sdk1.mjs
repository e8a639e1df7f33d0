// The official TypeScript client of the handshake revisions: `@modelcontextprotocol/sdk`.
//
//   node sdk1.mjs URL KEY STEPS_JSON [ANSWER_JSON]
//
// With an answer it declares that it shows forms, and answers each of them so, such as {"action": "decline"}; the report
// has what it was asked. The step `listen` is in listen.mjs.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  ElicitRequestSchema,
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

await main(({ url, requestInit, fetch, authProvider, args: [answer] }) => {
  const capabilities = answer === undefined ? {} : { elicitation: {} };
  const client = new Client(CLIENT_INFO, { capabilities });
  const asked = [];
  if (answer !== undefined) {
    client.setRequestHandler(ElicitRequestSchema, (request) => {
      asked.push(request.params);
      return JSON.parse(answer);
    });
  }
  const transport = new StreamableHTTPClientTransport(url, { requestInit, fetch, authProvider });
  return {
    client,
    transport,
    call: (params, options) => client.callTool(params, undefined, options),
    callbackOf: (params) => params.get('code'),
    onChanged: (list, told) => client.setNotificationHandler(CHANGED[list], told),
    describe: () => ({
      era: 'legacy',
      protocolVersion: transport.protocolVersion ?? null,
      sessionId: transport.sessionId ?? null,
      asked,
    }),
  };
});
