// The official TypeScript client of both eras: `@modelcontextprotocol/client`.
//
//   node client2.mjs URL KEY STEPS_JSON [--mode modern|legacy|auto]
//
// `modern` accepts revision 2026-07-28 only, `legacy` shakes hands, and `auto`
// (the default) probes first and falls back. The step `listen` is in listen.mjs.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { CLIENT_INFO, main } from './harness.mjs';

const MODES = { modern: { pin: '2026-07-28' }, legacy: 'legacy', auto: 'auto' };

function modeOf(args) {
  if (args.length === 0) return MODES.auto;
  if (args.length !== 2 || args[0] !== '--mode' || !Object.hasOwn(MODES, args[1])) {
    throw new Error('the mode is --mode modern, legacy or auto');
  }
  return MODES[args[1]];
}

await main(({ url, requestInit, fetch, args }) => {
  const client = new Client(CLIENT_INFO, { versionNegotiation: { mode: modeOf(args) } });
  const transport = new StreamableHTTPClientTransport(url, { requestInit, fetch });
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
    }),
  };
});
