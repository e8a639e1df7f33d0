// What the official clients for JavaScript share here: the steps, a recording fetch, and the
// one line of JSON that is printed at the end.

import { text as readAll } from 'node:stream/consumers';
import { listen, listening } from './listen.mjs';
import { Login } from './login.mjs';

/** Everything but listening ends within this time, in milliseconds. */
const TOTAL_MS_MAX = 28_000;
/** Pages of one list that are followed. */
const PAGES_MAX = 100;

/** Names this client to the server. */
export const CLIENT_INFO = { name: 'mcpproxy-test-client', version: '1.0.0' };

/**
 * A fetch that notes every exchange and keeps the text of every JSON body as it
 * came: a JSON response is one entry of `wire`, each event of a stream another.
 */
export function recordingFetch() {
  const wire = [];
  const http = [];
  const record = async (input, init) => {
    const response = await fetch(input, init);
    const type = response.headers.get('content-type') ?? '';
    http.push({ method: init?.method ?? 'GET', status: response.status, content_type: type });
    if (response.body === null) return response;
    const [forClient, forRecord] = response.body.tee();
    void keepBody(forRecord, type, wire);
    return new Response(forClient, response);
  };
  return { fetch: record, wire, http };
}

async function keepBody(stream, type, wire) {
  const isStream = type.startsWith('text/event-stream');
  let text = '';
  try {
    for await (const part of stream.pipeThrough(new TextDecoderStream())) {
      text += part;
      if (isStream) text = takeEvents(text, wire);
    }
  } catch {
    // The client closed the stream; what came before counts.
  }
  if (!isStream && text !== '') wire.push(text);
}

// Takes the finished events out of `text`; returns what is left of it.
function takeEvents(text, wire) {
  const events = text.replaceAll('\r\n', '\n').split('\n\n');
  const rest = events.pop();
  for (const event of events) {
    const data = event
      .split('\n')
      .filter((line) => line.startsWith('data:'))
      .map((line) => line.slice(5).replace(/^ /, ''));
    if (data.length > 0 && data.join('') !== '') wire.push(data.join('\n'));
  }
  return rest;
}

function describeError(error) {
  const { code, message, data } = error ?? {};
  return { code: code ?? null, message: message ?? String(error), data: data ?? null };
}

async function listAll(client, options) {
  let page = await client.listTools(undefined, options);
  const tools = [...page.tools];
  for (let pages = 1; page.nextCursor !== undefined && pages < PAGES_MAX; pages += 1) {
    page = await client.listTools({ cursor: page.nextCursor }, options);
    tools.push(...page.tools);
  }
  return { ...page, tools };
}

// Prompts, resources and templates, with one of each.
async function askOffers(client, { prompt, uri }, options) {
  const ref = { type: 'ref/prompt', name: prompt };
  return {
    prompts: await client.listPrompts(undefined, options),
    resources: await client.listResources(undefined, options),
    templates: await client.listResourceTemplates(undefined, options),
    prompt: await client.getPrompt({ name: prompt, arguments: { n: '1' } }, options),
    contents: await client.readResource({ uri }, options),
    completion: await client.complete({ ref, argument: { name: 'n', value: 'o' } }, options),
  };
}

// A step with `cancel` takes its call back as soon as there is progress.
function runStep(opened, step, options, { progress, http }) {
  const { client, call } = opened;
  if (step.listen) return listen(opened, step.listen, http, (more) => listAll(client, { ...options, ...more }));
  if (step.list) return listAll(client, options);
  if (step.ping) return client.ping(options);
  if (step.expire) return opened.login.expire(opened.url);
  if (step.offers) return askOffers(client, step.offers, options);
  if (step.call === undefined) throw new Error(`unknown step: ${JSON.stringify(step)}`);
  if (step.cancel) {
    const canceller = new AbortController();
    const onprogress = () => canceller.abort('enough');
    return call(step.call, { ...options, onprogress, signal: canceller.signal });
  }
  const onprogress = step.progress ? (update) => progress.push(update) : undefined;
  return call(step.call, { ...options, onprogress });
}

async function runSteps(opened, steps, deadline, report) {
  for (const step of steps) {
    const options = { timeout: Math.max(1, deadline - Date.now()) };
    try {
      report.steps.push({ ok: await runStep(opened, step, options, report) });
    } catch (error) {
      report.steps.push({ error: describeError(error) });
    }
  }
}

// A client that is sent to the provider gives up for then: its program passes it what the browser came back with, and connects
// again.
async function connect(open, { login, ...options }) {
  const attempt = async () => {
    const opened = { ...open({ ...options, authProvider: login }), login, url: options.url };
    try {
      await opened.client.connect(opened.transport, { timeout: TOTAL_MS_MAX });
      return { opened };
    } catch (error) {
      return { opened, error };
    }
  };
  let { opened, error } = await attempt();
  const callback = login?.takeCallback();
  if (callback !== undefined) {
    await opened.transport.finishAuth(opened.callbackOf?.(callback) ?? callback);
    ({ opened, error } = await attempt());
  }
  if (error !== undefined) throw error;
  return opened;
}

/**
 * Reads `URL KEY STEPS_JSON` (`-`: from standard input), connects, runs the steps, prints the report, and
 * ends the process: 0 once connected, 1 if connecting failed, 2 on wrong usage. A KEY that is a JSON object, such as
 * `{"name": "x", "document": true}`, has the client log in instead (`login.mjs`).
 *
 * `open({url, key, requestInit, fetch, authProvider, args})` returns `{client, transport, call, describe}`, for the step
 * `listen` also `onChanged(list, told)`, and `subscribes()`: whether the program itself has to open the stream; and
 * `callbackOf(params)` if the client takes less than all parameters of a login's end.
 */
export async function main(open) {
  const [url, key, stepsText, ...args] = process.argv.slice(2);
  const steps = await parseSteps(stepsText);
  const recorded = recordingFetch();
  const report = { steps: [], progress: [], wire: recorded.wire, http: recorded.http };
  const total = TOTAL_MS_MAX + listening(steps) * 1_000;
  const deadline = Date.now() + total;
  let exitCode = 1;
  const watchdog = setTimeout(() => finish(report, exitCode), total + 1_000);
  try {
    const login = key.startsWith('{') ? new Login(JSON.parse(key)) : undefined;
    report.login = login?.report;
    const requestInit = { headers: login ? { 'X-Test-Client': JSON.parse(key).name } : { 'X-API-Key': key } };
    const opened = await connect(open, { url: new URL(url), key, requestInit, fetch: recorded.fetch, login, args });
    exitCode = 0;
    Object.assign(report, opened.describe());
    report.serverInfo = opened.client.getServerVersion() ?? null;
    report.capabilities = opened.client.getServerCapabilities() ?? null;
    await runSteps(opened, steps, deadline, report);
    await opened.client.close();
  } catch (error) {
    report.error = describeError(error);
  }
  clearTimeout(watchdog);
  finish(report, exitCode);
}

async function parseSteps(text) {
  try {
    const steps = JSON.parse(text === '-' ? await readAll(process.stdin) : text);
    if (Array.isArray(steps)) return steps;
  } catch {
    // Reported below.
  }
  process.stderr.write('usage: node CLIENT.mjs URL KEY STEPS_JSON|- [MODE...]\n');
  process.exit(2);
}

function finish(report, exitCode) {
  // The exit waits for the write: a pipe may take a long line in pieces.
  process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(exitCode));
}
