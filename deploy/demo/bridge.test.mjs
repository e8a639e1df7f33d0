// node --test deploy/demo

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { onOneLine } from './stdio_session.mjs';

// A server whose behaviour is in the method: it answers with the very text it got.
const SERVER = `
  const lines = require('readline').createInterface({ input: process.stdin });
  const out = (text) => process.stdout.write(text + '\\n');
  const kept = [];
  lines.on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    const key = JSON.stringify(id);
    if (method === 'initialize') out('{"jsonrpc":"2.0","id":' + key + ',"result":{"pid":' + process.pid + '}}');
    if (method === 'echo') out('{"id":' + key + ',  "big":12345678901234567890, "result":' + JSON.stringify({ line }) + '}');
    if (method === 'noise') { out('not json'); out('{"jsonrpc":"2.0","method":"notifications/message"}'); out('{"id":' + key + ',"result":{}}'); }
    if (method === 'slow') {
      out('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":' + JSON.stringify(params._meta.progressToken) + ',"progress":1.0}}');
      out('{"id":' + key + ',"result":{"done":true}}');
    }
    if (method === 'ask') { kept.push(key); out('{"jsonrpc":"2.0","id":77,"method":"roots/list"}'); }
    if (method === undefined && id === 77) out('{"id":' + kept.shift() + ',"result":' + line + '}');
    if (method === 'die') process.exit(0);
  });
`;

let bridge;

async function startBridge(...options) {
  const child = spawn(
    process.execPath,
    [new URL('bridge.mjs', import.meta.url).pathname, '--port', '0', ...options, '--', process.execPath, '-e', SERVER],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  );
  let text = '';
  for await (const chunk of child.stdout) {
    text += chunk;
    if (text.includes('\n')) break;
  }
  const url = /^listening (http:\/\/127\.0\.0\.1:\d+\/mcp)\n$/.exec(text)?.[1];
  assert.ok(url, `ready line: ${text}`);
  const ended = new Promise((resolve) => child.once('exit', resolve));
  return { child, url, ended };
}

function send(target, { method = 'POST', body, headers = {} }) {
  return new Promise((resolve, reject) => {
    const request = http.request(target.url, {
      method,
      agent: false,
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
    });
    request.on('error', reject);
    request.on('response', async (response) => {
      const chunks = [];
      for await (const chunk of response) chunks.push(chunk);
      const { statusCode: status, headers: answered } = response;
      resolve({ status, type: answered['content-type'], session: answered['mcp-session-id'], text: Buffer.concat(chunks).toString() });
    });
    request.end(body);
  });
}

async function openSession(target = bridge) {
  const answer = await send(target, { body: '{"jsonrpc":"2.0","id":0,"method":"initialize"}' });
  assert.equal(answer.status, 200);
  const headers = { 'mcp-session-id': answer.session };
  return { pid: JSON.parse(answer.text).result.pid, headers, post: (body) => send(target, { body, headers }) };
}

const isRunning = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

before(async () => {
  bridge = await startBridge();
});
after(() => bridge.child.kill());

test('answers are the bytes of the server, requests the bytes of the client', async () => {
  const { post } = await openSession();
  const sent = '{"jsonrpc":"2.0", "id":"a",\n "method":"echo","params":{"b":1.50,"a":"x\\ny \u00e9"}}';
  const answer = await post(sent);
  assert.equal(answer.type, 'application/json');
  assert.ok(answer.text.startsWith('{"id":"a",  "big":12345678901234567890, '), answer.text);
  assert.equal(JSON.parse(answer.text).result.line, sent.replace('\n', ' '));
});

test('a body is brought on one line without touching anything else', () => {
  for (const [given, wanted] of [['{}', '{}'], ['{\r\n}\n', '{  } '], ['{"a":"\\n"}', '{"a":"\\n"}']]) {
    assert.equal(onOneLine(Buffer.from(given)).toString(), wanted);
  }
});

test('progress turns the answer into a stream', async () => {
  const { post } = await openSession();
  const answer = await post('{"jsonrpc":"2.0","id":1,"method":"slow","params":{"_meta":{"progressToken":"t"}}}');
  assert.equal(answer.type, 'text/event-stream');
  const data = answer.text.split('\n').filter((line) => line.startsWith('data: '));
  assert.match(data[0], /"progress":1\.0/);
  assert.equal(data[1], 'data: {"id":1,"result":{"done":true}}');
});

test('stray output and unasked notifications disturb nobody', async () => {
  const { post } = await openSession();
  const answer = await post('{"jsonrpc":"2.0","id":1,"method":"noise"}');
  assert.equal(answer.text, '{"id":1,"result":{}}');
});

test('a question of the server reaches the client, and its answer the server', async () => {
  const { post, headers } = await openSession();
  const text = await new Promise((resolve, reject) => {
    const request = http.request(bridge.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
    });
    request.on('error', reject);
    request.on('response', async (response) => {
      let seen = '';
      for await (const chunk of response) {
        seen += chunk;
        if (seen.endsWith('"method":"roots/list"}\n\n')) {
          assert.equal((await post('{"jsonrpc":"2.0","id":77,"result":{"roots":[]}}')).status, 202);
        }
      }
      resolve(seen);
    });
    request.end('{"jsonrpc":"2.0","id":5,"method":"ask"}');
  });
  assert.match(text, /"id":5,"result":\{"jsonrpc":"2\.0","id":77,"result":\{"roots":\[\]\}\}/);
});

test('a question that no stream can carry is answered for the client', async () => {
  const { headers } = await openSession();
  const body = '{"jsonrpc":"2.0","id":5,"method":"ask"}';
  const answer = await send(bridge, { body, headers: { ...headers, accept: 'application/json' } });
  assert.match(answer.text, /-32601/);
});

test('a cancelled request is let go', async () => {
  const { post } = await openSession();
  const waiting = post('{"jsonrpc":"2.0","id":9,"method":"never"}');
  const echo = await post('{"jsonrpc":"2.0","id":10,"method":"echo"}');
  assert.equal(echo.status, 200);
  const twice = await post('{"jsonrpc":"2.0","id":9,"method":"echo"}');
  assert.equal(twice.status, 400);
  await post('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}');
  assert.deepEqual((({ status, text }) => ({ status, text }))(await waiting), { status: 200, text: '' });
});

test('a server that dies answers what waits, and its session is gone', async () => {
  const { post } = await openSession();
  const answer = JSON.parse((await post('{"jsonrpc":"2.0","id":3,"method":"die"}')).text);
  assert.deepEqual([answer.id, answer.error.code], [3, -32603]);
  assert.equal((await post('{"jsonrpc":"2.0","id":4,"method":"echo"}')).status, 404);
});

test('DELETE ends the session and its process', async () => {
  const { pid, headers, post } = await openSession();
  assert.equal((await send(bridge, { method: 'DELETE', headers })).status, 204);
  assert.equal(isRunning(pid), false);
  assert.equal((await post('{"jsonrpc":"2.0","id":1,"method":"echo"}')).status, 404);
});

test('what is wrong is refused', async () => {
  const echo = '{"jsonrpc":"2.0","id":1,"method":"echo"}';
  const { headers } = await openSession();
  const cases = [
    ['GET', { method: 'GET' }, 405],
    ['no session', { body: echo }, 400],
    ['unknown session', { body: echo, headers: { 'mcp-session-id': 'x' } }, 404],
    ['batch', { body: `[${echo}]`, headers }, 400],
    ['no JSON', { body: '{', headers }, 400],
    ['null id', { body: '{"jsonrpc":"2.0","id":null,"method":"echo"}', headers }, 400],
    ['version', { body: echo, headers: { ...headers, 'mcp-protocol-version': '2026-07-28' } }, 400],
    ['content type', { body: echo, headers: { ...headers, 'content-type': 'text/plain' } }, 415],
    ['host', { body: echo, headers: { ...headers, host: 'example.com' } }, 403],
    ['origin', { body: echo, headers: { ...headers, origin: 'http://example.com' } }, 403],
    ['origin that only starts well', { body: echo, headers: { ...headers, origin: 'http://127.0.0.1.example.com' } }, 403],
  ];
  for (const [name, options, status] of cases) {
    const answer = await send(bridge, options);
    assert.equal(answer.status, status, name);
    assert.equal(typeof JSON.parse(answer.text).error.code, 'number', name);
  }
});

for (const [name, options, end] of [
  ['SIGTERM', [], (child) => child.kill('SIGTERM')],
  ['SIGINT', [], (child) => child.kill('SIGINT')],
  ['the end of stdin', ['--exit-on-stdin-close'], (child) => child.stdin.end()],
]) {
  test(`${name} ends the bridge and every server`, async () => {
    const own = await startBridge(...options);
    const pids = [(await openSession(own)).pid, (await openSession(own)).pid];
    end(own.child);
    assert.equal(await own.ended, 0);
    assert.deepEqual(pids.map(isRunning), [false, false]);
  });
}
