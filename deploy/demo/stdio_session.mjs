// One MCP session over one stdio child: writes the client's messages to the
// child line by line and brings the child's lines back to the HTTP request
// they belong to. Lines are passed on as the bytes they are; they are parsed
// only to find out where they go.

import { spawn } from 'node:child_process';

/** Longest line taken from a child, in bytes. A longer one ends the session. */
export const LINE_BYTES_MAX = 16 * 1024 * 1024;
/** Requests of one session that may wait for an answer at the same time. */
export const PENDING_MAX = 1024;
/** How long one request may wait for its answer, in milliseconds. */
export const ANSWER_WAIT_MS_MAX = 600_000;
/** How long a child may take to end after SIGTERM before it gets SIGKILL, in milliseconds. */
export const CHILD_STOP_WAIT_MS_MAX = 2_000;
/** How much may pile up for a client that does not read its stream, in bytes. */
const STREAM_BACKLOG_BYTES_MAX = 16 * 1024 * 1024;

const NEWLINE = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;

/** A JSON-RPC error as the text of a message. `id` may be null. */
export function errorText(id, code, message) {
  return JSON.stringify({ jsonrpc: '2.0', id: id ?? null, error: { code, message } });
}

/**
 * The same JSON on one line. A line break inside a JSON string is always
 * escaped, so a raw one can only be white space between tokens.
 */
export function onOneLine(body) {
  if (!body.includes(NEWLINE) && !body.includes(CARRIAGE_RETURN)) return body;
  return Buffer.from(body.map((byte) => (byte === NEWLINE || byte === CARRIAGE_RETURN ? SPACE : byte)));
}

// 1 and "1" are different JSON-RPC ids.
const idKey = (id) => `${typeof id}:${id}`;

/** One HTTP request that waits for its answer: JSON at once, or a stream if something comes before. */
class Waiting {
  constructor(id, progressToken, response, takesStream) {
    this.id = id;
    this.progressToken = progressToken;
    this.response = response;
    this.takesStream = takesStream;
    this.timer = undefined;
  }

  get open() {
    return !this.response.destroyed && !this.response.writableEnded;
  }

  /** Sends a message that precedes the answer. False if this client cannot take it. */
  precede(line) {
    if (!this.open || !this.takesStream) return false;
    if (this.response.writableLength > STREAM_BACKLOG_BYTES_MAX) {
      this.response.destroy();
      return false;
    }
    this.#startStream();
    this.#event(line);
    return true;
  }

  answer(line) {
    if (!this.open) return;
    if (this.response.headersSent) {
      this.#event(line);
      this.response.end();
      return;
    }
    this.response.writeHead(200, { 'content-type': 'application/json', 'content-length': line.length });
    this.response.end(line);
  }

  /** Ends the exchange without an answer: what a cancelled request gets. */
  endEmpty() {
    if (!this.open) return;
    this.#startStream();
    this.response.end();
  }

  #startStream() {
    if (this.response.headersSent) return;
    this.response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  }

  #event(line) {
    this.response.write('event: message\ndata: ');
    this.response.write(line);
    this.response.write('\n\n');
  }
}

/** A session and its child. `onEnd` is called once, when the child is gone. */
export class StdioSession {
  #child;
  #waiting = new Map();
  #chunks = [];
  #chunkBytes = 0;
  #onEnd;
  #gone;
  #markGone;

  constructor(command, args, onEnd) {
    this.#onEnd = onEnd;
    this.#gone = new Promise((resolve) => {
      this.#markGone = resolve;
    });
    this.ended = false;
    // A group of its own, so that what the child itself starts can be ended with it.
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'], detached: true });
    this.#child.on('error', (error) => this.#end(`the server could not be started: ${error.code ?? 'unknown reason'}`));
    this.#child.on('exit', () => this.#exited());
    this.#child.on('close', () => this.#end('the server process ended'));
    this.#child.stdin.on('error', () => {}); // a broken pipe shows as `exit`
    this.#child.stdout.on('data', (chunk) => this.#read(chunk));
  }

  get busy() {
    return this.#waiting.size > 0;
  }

  /**
   * Sends a request to the child; its answer goes to `response`.
   * Returns a text saying why not, or undefined.
   */
  request(message, body, response, takesStream) {
    const key = idKey(message.id);
    if (this.#waiting.has(key)) return 'this request id is already in use';
    if (this.#waiting.size >= PENDING_MAX) return 'too many requests are waiting';
    const waiting = new Waiting(message.id, message.params?._meta?.progressToken, response, takesStream);
    waiting.timer = setTimeout(() => {
      this.#waiting.delete(key);
      waiting.answer(Buffer.from(errorText(message.id, -32603, 'the server did not answer in time')));
    }, ANSWER_WAIT_MS_MAX);
    waiting.timer.unref();
    this.#waiting.set(key, waiting);
    this.#write(body);
    return undefined;
  }

  /** Sends a notification, or the client's answer to a request of the child. */
  send(message, body) {
    this.#write(body);
    if (message.method !== 'notifications/cancelled') return;
    // A cancelled request is not answered, so nobody may be left waiting for it.
    this.#take(message.params?.requestId)?.endEmpty();
  }

  /** Ends the child and everything it started. Resolves when it is gone. */
  async stop() {
    if (this.ended) return;
    this.#signal('SIGTERM');
    const timer = setTimeout(() => this.#signal('SIGKILL'), CHILD_STOP_WAIT_MS_MAX);
    await this.#gone;
    clearTimeout(timer);
  }

  /** The last resort while the bridge itself is ending: no waiting. */
  kill() {
    this.#signal('SIGKILL');
  }

  #signal(name) {
    if (this.#child.pid === undefined) return;
    try {
      process.kill(-this.#child.pid, name);
    } catch {
      // The group is gone already.
    }
  }

  #write(body) {
    if (!this.#child.stdin.writable) return;
    this.#child.stdin.write(onOneLine(body));
    this.#child.stdin.write('\n');
  }

  #read(chunk) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      this.#chunks.push(chunk.subarray(start, end));
      const line = Buffer.concat(this.#chunks);
      this.#chunks = [];
      this.#chunkBytes = 0;
      start = end + 1;
      this.#line(line);
    }
    this.#chunks.push(chunk.subarray(start));
    this.#chunkBytes += chunk.length - start;
    if (this.#chunkBytes <= LINE_BYTES_MAX) return;
    this.#chunks = [];
    this.#chunkBytes = 0;
    this.kill();
  }

  #line(rawLine) {
    const line = rawLine.at(-1) === CARRIAGE_RETURN ? rawLine.subarray(0, -1) : rawLine;
    let message;
    try {
      message = JSON.parse(line.toString('utf8'));
    } catch {
      return; // servers print stray text on stdout; it is not part of the protocol
    }
    if (message === null || typeof message !== 'object') return;
    if (message.method === undefined) {
      this.#take(message.id)?.answer(line);
    } else if (message.id === undefined) {
      this.#notification(message, line);
    } else {
      this.#requestOfChild(message, line);
    }
  }

  // Without a standing stream only what belongs to a waiting request can be
  // delivered: its progress. The rest is dropped, as the protocol allows.
  #notification(message, line) {
    if (message.method !== 'notifications/progress') return;
    const token = message.params?.progressToken;
    if (token === undefined) return;
    for (const waiting of this.#waiting.values()) {
      if (waiting.progressToken === token) {
        waiting.precede(line);
        return;
      }
    }
  }

  // A question of the server travels on the stream of the request that is most
  // likely to have caused it. With no stream the child gets an error, or it
  // would wait for ever.
  #requestOfChild(message, line) {
    for (const waiting of [...this.#waiting.values()].reverse()) {
      if (waiting.precede(line)) return;
    }
    this.#write(Buffer.from(errorText(message.id, -32601, 'no client stream can carry this request')));
  }

  #take(id) {
    const key = idKey(id);
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return undefined;
    this.#waiting.delete(key);
    clearTimeout(waiting.timer);
    return waiting;
  }

  // The last lines may still be in the pipe, so the session ends when that is
  // closed; a stranger who holds it open only gets a moment.
  #exited() {
    // What the child left behind in its group would otherwise outlive it.
    this.#signal('SIGKILL');
    setTimeout(() => this.#end('the server process ended'), CHILD_STOP_WAIT_MS_MAX).unref();
  }

  #end(reason) {
    if (this.ended) return;
    this.ended = true;
    this.#markGone();
    for (const waiting of [...this.#waiting.values()]) {
      this.#take(waiting.id)?.answer(Buffer.from(errorText(waiting.id, -32603, reason)));
    }
    this.#onEnd();
  }
}
