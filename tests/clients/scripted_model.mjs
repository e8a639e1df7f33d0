// A model that does as it is told, for agents (Claude Code, Codex, Gemini CLI): the Anthropic Messages API, the OpenAI Responses
// API and the Gemini API, all as streams.
//
//   node scripted_model.mjs TOOL ARGUMENTS_JSON CALLS
//
// Any free port on the loopback interface. Prints `listening http://127.0.0.1:PORT`, and then a line of JSON for each question
// that offers TOOL: {"asked": {"number", "results"}}, the results being those of the last calls. The first CALLS answers call
// TOOL, later ones end the turn with a text. Every answer but the first waits for a line on standard input, so that a test can
// act in between. Questions without TOOL (for titles and the like) get the text at once. Also a proxy that lets nothing
// through: it prints {"beyond": "METHOD TARGET"} for what an agent wants from elsewhere. Ends with its standard input.

import http from 'node:http';
import { createInterface } from 'node:readline';

const [tool, args, calls] = process.argv.slice(2);
/** Characters of a question. */
const QUESTION_MAX = 32 * 1024 * 1024;
const TEXT = 'The scripted model has ended its turn.';

let asked = 0;
/** Lines of standard input that no answer has used up, and answers that wait for one. */
let lines = 0;
const waiting = [];
createInterface({ input: process.stdin })
  .on('line', () => (waiting.length > 0 ? waiting.shift()() : (lines += 1)))
  .on('close', () => process.exit(0));

async function nextLine() {
  if (lines > 0) lines -= 1;
  else await new Promise((resolve) => waiting.push(resolve));
}

function say(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function stream(response, events) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''));
}

/** Anthropic: `POST /v1/messages`. */
const messages = {
  tools: (body) => body.tools ?? [],
  results: (body) => {
    const content = body.messages.at(-1)?.content;
    return Array.isArray(content) ? content.filter((block) => block.type === 'tool_result').map((block) => block.content) : [];
  },
  answer: (response, body, number, call) => {
    const [content_block, delta, stop_reason] = call
      ? [{ type: 'tool_use', id: `toolu_${number}`, name: call.name, input: {} }, { type: 'input_json_delta', partial_json: args }, 'tool_use']
      : [{ type: 'text', text: '' }, { type: 'text_delta', text: TEXT }, 'end_turn'];
    const usage = { input_tokens: 1, output_tokens: 1 };
    const message = { id: `msg_${number}`, type: 'message', role: 'assistant', model: body.model, content: [], stop_reason: null, usage };
    stream(response, [
      { type: 'message_start', message },
      { type: 'content_block_start', index: 0, content_block },
      { type: 'content_block_delta', index: 0, delta },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage },
      { type: 'message_stop' },
    ]);
  },
};

/** OpenAI: `POST /v1/responses`. */
const responses = {
  // Codex puts the tools of a server into a namespace
  tools: (body) => (body.tools ?? []).flatMap((entry) => (entry.tools ?? [entry]).map(({ name }) => ({ name, namespace: entry.tools && entry.name }))),
  results: (body) => {
    const since = body.input.findLastIndex((item) => item.type === 'function_call');
    return body.input.slice(since + 1).filter((item) => item.type === 'function_call_output').map((item) => item.output);
  },
  answer: (response, body, number, call) => {
    const item = call
      ? { type: 'function_call', id: `fc_${number}`, call_id: `call_${number}`, status: 'completed', arguments: args, ...call }
      : { type: 'message', id: `msg_${number}`, role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: TEXT, annotations: [] }] };
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
    const whole = { id: `resp_${number}`, object: 'response', model: body.model, status: 'completed', output: [item], usage };
    stream(response, [
      { type: 'response.created', response: { ...whole, status: 'in_progress', output: [] } },
      { type: 'response.output_item.added', output_index: 0, item },
      { type: 'response.output_item.done', output_index: 0, item },
      { type: 'response.completed', response: whole },
    ]);
  },
};

/** Google: `POST /v1beta/models/MODEL:streamGenerateContent`. */
const contents = {
  tools: (body) => (body.tools ?? []).flatMap((entry) => entry.functionDeclarations ?? []),
  results: (body) => (body.contents.at(-1)?.parts ?? []).filter((part) => part.functionResponse).map((part) => part.functionResponse.response),
  answer: (response, body, number, call) => {
    const part = call ? { functionCall: { id: `call_${number}`, name: call.name, args: JSON.parse(args) } } : { text: TEXT };
    const candidates = [{ index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' }];
    const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 };
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`data: ${JSON.stringify({ candidates, usageMetadata })}\n\n`);
  },
};

function apiOf(path) {
  if (path.endsWith(':streamGenerateContent')) return contents;
  return { '/v1/messages': messages, '/v1/responses': responses }[path];
}

async function answer(response, api, body) {
  const offered = api.tools(body).find(({ name }) => name === tool || name?.endsWith(`_${tool}`));
  if (offered === undefined) return api.answer(response, body, 0);
  asked += 1;
  const number = asked;
  say({ asked: { number, results: api.results(body) } });
  if (number > 1) await nextLine();
  api.answer(response, body, number, number <= Number(calls) ? offered : undefined);
}

const server = http.createServer((request, response) => {
  const api = apiOf(request.url.split('?')[0]);
  if (!request.url.startsWith('/')) say({ beyond: `${request.method} ${request.url}` });
  let text = '';
  request.setEncoding('utf8');
  request.on('data', (chunk) => {
    text += chunk;
    if (text.length > QUESTION_MAX) request.destroy();
  });
  request.on('end', () => {
    if (request.method === 'POST' && api !== undefined) void answer(response, api, JSON.parse(text));
    else response.writeHead(404).end();
  });
});
server.on('connect', (request, socket) => {
  say({ beyond: `CONNECT ${request.url}` });
  socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
});
server.listen(0, '127.0.0.1', () => console.log(`listening http://127.0.0.1:${server.address().port}`));
