import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import {
  bodyOf,
  categoryCount,
  categoryName,
  idName,
  ownerCount,
  ownerName,
  renumberDocument,
  renumberId,
  type DocumentsBody,
} from './documents';
import { serve } from './child';
import { machineMs } from './clock';
import { quantiles } from './quantiles';

/** How often a slow reader reads. */
const sipMs = 50;

/** A body: new documents in each request, a text, or so many bytes that differ. */
export type LoadBody = DocumentsBody | { text: string } | { bytes: number };

/**
 * The request that is sent. A path may contain `{owner}` or `{category}`, which iterate over all values, or `{id}`: the
 * ids of new documents, or of the first `ids` ones. A status that is not in `statuses` ends the run.
 */
export interface LoadRequest {
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: LoadBody;
  ids?: number;
  statuses: number[];
}

/** A request, and how it is sent. */
export interface Load extends LoadRequest {
  port: number;
  connections: number;
  seconds: number;
  requestsMax: number;
  /** The first number of documents, values and bodies. */
  firstNumber: number;
  /** The rate at which requests are due; if no connection is free, the wait counts towards the latency. */
  perSecond?: number;
  /** A path that each connection requests by HEAD, and whose answer it has, before time begins. */
  greeting?: string;
  /** Whether to return when each request was answered, of requests that write one document each. */
  timesAnswers?: boolean;
}

export interface LoadResult {
  requests: number;
  /** The first answer with another status, which ended the run. */
  refused: string | undefined;
  /** The bytes of all answers. */
  bytes: number;
  elapsedMs: number;
  p50Ms: number;
  p99Ms: number;
  /** The time of each answer on the clock of the machine, in the order of the numbers; undefined if not wanted. */
  answeredMs: number[] | undefined;
}

/** A load without an end of its own. */
interface SlowReads extends Omit<Load, 'statuses' | 'requestsMax'> {
  bytesPerSecond: number;
}

interface RunState {
  requests: number;
  refused: string | undefined;
  bytes: number;
  latenciesMs: number[];
  /** Requests that are due, and those of them that were begun. */
  sent: number;
  begun: number;
  answeredMs: number[] | undefined;
}

/** Makes the next request of a connection, as buffers to be sent one after the other. */
type NextRequest = () => Buffer[];
/** Makes the head of a request with a body of this size, if it has one. */
type MakeHead = (target: string, sizeBytes?: number) => Buffer;

/**
 * The load generator: raw sockets with one request in flight on each, so that it uses little of the cores shared with
 * the sides. Requests are prepared bytes; only the digits of documents change. Time begins when all connections are
 * open.
 */
async function run(load: Load): Promise<LoadResult> {
  const nextRequest = requestsOf(load);
  const sockets = await Promise.all(Array.from({ length: load.connections }, () => open(load)));
  const answeredMs: number[] | undefined = load.timesAnswers ? [] : undefined;
  const state: RunState = { requests: 0, refused: undefined, bytes: 0, latenciesMs: [], sent: 0, begun: 0, answeredMs };
  const startedMs = performance.now();
  const endsMs = startedMs + load.seconds * 1000;
  /** When the next request is due; undefined if there is none. */
  const nextDueMs = () => {
    if (state.sent >= load.requestsMax || state.refused !== undefined) return undefined;
    const dueMs = load.perSecond ? startedMs + (state.sent * 1000) / load.perSecond : performance.now();
    if (dueMs >= endsMs) return undefined;
    state.sent++;
    return dueMs;
  };
  await Promise.all(sockets.map((socket) => drive(socket, load, nextRequest(), nextDueMs, state)));
  const elapsedMs = performance.now() - startedMs;
  const { requests, refused, bytes } = state;
  const [p50Ms = NaN, p99Ms = NaN] = quantiles(state.latenciesMs, [0.5, 0.99]);
  return { requests, refused, bytes, elapsedMs, p50Ms, p99Ms, answeredMs };
}

/** Returns a function that creates, for each connection, a generator of requests. */
function requestsOf(load: Omit<Load, 'statuses' | 'requestsMax'>): () => NextRequest {
  const { port, method, path, headers, body, firstNumber, ids } = load;
  const head: MakeHead = (target, sizeBytes) => {
    const lines = [`${method} ${target} HTTP/1.1`, `Host: 127.0.0.1:${port}`];
    for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
    if (sizeBytes !== undefined) lines.push(`Content-Length: ${sizeBytes}`);
    return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  };
  let number = firstNumber;
  if (path.includes('{id}')) {
    const requestOf = () => addressedRequest(head, path, body);
    return () => {
      const { request, renumber } = requestOf();
      return () => {
        // A stride coprime to the count visits all documents.
        renumber(ids === undefined ? number++ : (number++ * 7919) % ids);
        return [request];
      };
    };
  }
  if (body && 'documents' in body) {
    return () => {
      const { body: bytes, places } = bodyOf(body);
      const requestHead = head(path, bytes.length);
      const request = Buffer.concat([requestHead, bytes]);
      // The buffer is reused only after the answer, when the socket no longer references it.
      return () => {
        for (const place of places) renumberDocument(request, requestHead.length + place, number++);
        return [request];
      };
    };
  }
  if (body && 'text' in body) {
    const bytes = Buffer.from(body.text);
    const request = Buffer.concat([head(path, bytes.length), bytes]);
    return () => () => [request];
  }
  if (body) {
    const requestHead = head(path, body.bytes);
    return () => {
      const bytes = Buffer.alloc(body.bytes, 'All work and no play. ');
      return () => {
        bytes.writeUInt32LE(number++, 0);
        return [requestHead, bytes];
      };
    };
  }
  const heads = pathsOf(path).map((target) => [head(target)]);
  // A stride coprime to the count visits all values, and never adjacent ones in sequence.
  return () => () => heads[(number++ * 7919) % heads.length]!;
}

/** A request whose path has the id of a document, and a function that makes it one for the document of a number. */
function addressedRequest(
  head: MakeHead,
  path: string,
  body: LoadBody | undefined,
): { request: Buffer; renumber: (number: number) => void } {
  const text = body && 'text' in body ? body.text : '';
  const { body: bytes, places } = body && 'documents' in body ? bodyOf(body) : { body: Buffer.from(text), places: [] };
  const requestHead = head(path.replace('{id}', idName(0)), body ? bytes.length : undefined);
  const request = Buffer.concat([requestHead, bytes]);
  const idOffset = requestHead.indexOf(idName(0));
  const renumber = (number: number) => {
    renumberId(request, idOffset, number);
    for (const place of places) renumberDocument(request, requestHead.length + place, number);
  };
  return { request, renumber };
}

function pathsOf(path: string): string[] {
  if (path.includes('{owner}')) {
    return Array.from({ length: ownerCount }, (_, i) => path.replace('{owner}', ownerName(i)));
  }
  return Array.from({ length: categoryCount }, (_, i) => path.replace('{category}', categoryName(i)));
}

/**
 * Opens a connection. It is open for the client before the server has accepted it, and Node accepts one connection per
 * iteration of the event loop: only an answer shows that it has been accepted.
 */
function open({ port, greeting }: Load): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    const settled = () => resolve(socket.removeAllListeners('data'));
    let answer = '';
    socket.on('error', reject).on('close', () => reject(new Error('A connection was closed before it was used.')));
    socket.on('connect', () => {
      if (!greeting) return settled();
      socket.write(`HEAD ${greeting} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`);
    });
    socket.on('data', (chunk: Buffer) => {
      answer += chunk.toString('latin1');
      if (answer.endsWith('\r\n\r\n')) settled();
    });
  });
}

/** Sends requests on a connection, each after the previous answer and not before it is due. */
function drive(
  socket: Socket,
  { statuses }: Load,
  nextRequest: NextRequest,
  nextDueMs: () => number | undefined,
  state: RunState,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let sentMs = 0;
    let place = 0;
    let head = '';
    let missing = 0;
    let refusal = '';
    let status = 0;

    const goOn = () => {
      const dueMs = nextDueMs();
      if (dueMs === undefined) {
        socket.off('close', onClose).end(resolve);
        return;
      }
      // A late timer is not the server's fault; a missing free connection is.
      if (dueMs > performance.now()) setTimeout(() => send(performance.now()), dueMs - performance.now());
      else send(dueMs);
    };
    const send = (fromMs: number) => {
      const buffers = nextRequest();
      place = state.begun++;
      sentMs = fromMs;
      if (buffers.length > 1) socket.cork();
      for (const buffer of buffers) socket.write(buffer);
      if (buffers.length > 1) socket.uncork();
    };
    const onData = (data: Buffer) => {
      let chunk = data;
      state.bytes += chunk.length;
      if (missing === 0) {
        const headEnd = chunk.indexOf('\r\n\r\n');
        head += chunk.toString('latin1', 0, headEnd < 0 ? chunk.length : headEnd);
        if (headEnd < 0) return;
        status = Number(head.slice(9, 12));
        const [, length = status === 304 ? '0' : undefined] = /\r\ncontent-length: (\d+)/i.exec(head) ?? [];
        if (length === undefined) {
          socket.destroy(new Error(`An answer without a length: ${head}`));
          return;
        }
        head = '';
        missing = Number(length);
        chunk = chunk.subarray(headEnd + 4);
      }
      missing -= chunk.length;
      const isExpected = statuses.includes(status);
      if (!isExpected) refusal += chunk.toString('latin1', 0, 500);
      if (missing > 0) return;
      if (isExpected) state.requests++;
      else state.refused = `${status} ${refusal}`;
      state.latenciesMs.push(performance.now() - sentMs);
      if (state.answeredMs) state.answeredMs[place] = machineMs();
      goOn();
    };
    const onClose = () => reject(new Error('A connection was closed before its answer had come.'));
    socket.on('data', onData).on('error', reject).on('close', onClose);
    goOn();
  });
}

/**
 * A slow reader: sends one request on each connection, and reads a little of the answer at a time, so that the rest
 * must be buffered. Returns the number of bytes read.
 */
async function trickle(load: SlowReads): Promise<{ bytes: number }> {
  const { connections, seconds, bytesPerSecond } = load;
  const nextRequest = requestsOf(load);
  let bytes = 0;
  const sockets = Array.from({ length: connections }, () => {
    const socket = connect({ port: load.port, host: '127.0.0.1', noDelay: true });
    for (const buffer of nextRequest()()) socket.write(buffer);
    return socket.on('error', () => {}).pause();
  });
  const sipBytes = Math.ceil((bytesPerSecond * sipMs) / 1000);
  const timer = setInterval(() => {
    for (const socket of sockets) bytes += sip(socket, sipBytes);
  }, sipMs);
  await delay(seconds * 1000);
  clearInterval(timer);
  for (const socket of sockets) socket.destroy();
  return { bytes };
}

/** Reads `sizeBytes` bytes, or as many as have arrived if these are fewer. Returns their number. */
function sip(socket: Socket, sizeBytes: number): number {
  const bytes = (socket.read(sizeBytes) ?? socket.read()) as Buffer | null;
  return bytes?.length ?? 0;
}

/** Keeps this many processors busy with unrelated work. */
async function spin({ threads, seconds }: { threads: number; seconds: number }): Promise<void> {
  const workers = Array.from({ length: threads }, () => new Worker('for (;;);', { eval: true }));
  await delay(seconds * 1000);
  await Promise.all(workers.map((worker) => worker.terminate()));
}

const calls = { run, trickle, spin };

export type LoadCalls = typeof calls;

serve(calls);
