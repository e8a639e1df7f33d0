// The official TypeScript client of both eras: `@modelcontextprotocol/client`.
//
//   node client2.mjs URL KEY STEPS_JSON [--mode modern|legacy|auto] [--answer JSON]
//
// `modern` accepts revision 2026-07-28 only, `legacy` shakes hands, and `auto`
// (the default) probes first and falls back. With `--answer` it declares that it
// shows forms, and answers each of them so, such as {"action": "decline"}, or not
// at all: "never". The report has what it was asked.
// The step `listen` is in listen.mjs.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { CLIENT_INFO, main } from './harness.mjs';

const MODES = { modern: { pin: '2026-07-28' }, legacy: 'legacy', auto: 'auto' };

function optionsOf(args) {
  const options = { mode: MODES.auto };
  for (let at = 0; at < args.length; at += 2) {
    const [name, value] = args.slice(at, at + 2);
    if (name === '--mode' && Object.hasOwn(MODES, value)) options.mode = MODES[value];
    else if (name === '--answer' && value !== undefined) options.answer = JSON.parse(value);
    else throw new Error('the options are --mode modern, legacy or auto, and --answer JSON');
  }
  return options;
}

await main(({ url, requestInit, fetch, authProvider, args }) => {
  const { mode, answer } = optionsOf(args);
  const capabilities = answer === undefined ? {} : { elicitation: { form: {} } };
  const client = new Client(CLIENT_INFO, { versionNegotiation: { mode }, capabilities });
  const asked = [];
  if (answer !== undefined) {
    client.setRequestHandler('elicitation/create', (request) => {
      asked.push(request.params);
      return answer === 'never' ? new Promise(() => {}) : answer;
    });
  }
  const transport = new StreamableHTTPClientTransport(url, { requestInit, fetch, authProvider });
  return {
    client,
    transport,
    call: (params, options) => client.callTool(params, options),
    onChanged: (list, told) => client.setNotificationHandler(`notifications/${list}/list_changed`, told),
    subscribes: () => client.getProtocolEra() === 'modern',
    describe: () => ({
      era: client.getProtocolEra() ?? null,
      protocolVersion: client.getNegotiatedProtocolVersion() ?? null,
      sessionId: transport.sessionId ?? null,
      asked,
    }),
  };
});
