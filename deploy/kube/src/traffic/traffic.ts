// Runs clients of a gateway until SIGTERM. `writers` of them write a document and read it, on connections that are
// kept, sometimes send money to the app, and pause. One client of each other kind, see traffic-kinds.ts, except the
// kinds that are named last, pauses a little longer. Prints a line of JSON: how many requests were made, also by the
// second of the clock, what was acknowledged, and the first failures.
import { setTimeout as delay } from 'node:timers/promises';
import type { TrafficResult } from './request-counts';
import { otherKinds, type SendOptions, type Work } from './traffic-kinds';

const [url = '', key = '', app = '', writers, pauseMs, operatorKey = '', ...without] = process.argv.slice(2);
/** A writer sends money once in so many rounds. */
const moneyEvery = 20;
/**
 * The other kinds pause longer, so that they cost little beside the writers, each of whose requests is a change that
 * must not be lost.
 */
const otherPauseMs = 150;
/** The time limit of a request; a gateway answers within 10 s. */
const timeoutMs = 15_000;
const failuresShown = 5;
const result: TrafficResult = {
  requests: 0,
  requestsAt: {},
  kinds: {},
  written: [],
  uploaded: {},
  failed: 0,
  failures: [],
};
let isEnding = false;
process.on('SIGTERM', () => (isEnding = true));

function fail(text: string): void {
  result.failed += 1;
  // The time leads to that moment in the logs of the pods, which say more.
  if (result.failures.length < failuresShown) result.failures.push(`${new Date().toISOString()} ${text}`);
}

function count(): void {
  const second = Math.floor(Date.now() / 1_000);
  result.requests += 1;
  result.requestsAt[second] = (result.requestsAt[second] ?? 0) + 1;
}

/** Returns the body of an answer with the `status`. Counts anything else as a failure, and returns undefined. */
async function send<T>(
  method: string,
  path: string,
  status: number,
  { body, headers = {}, read = (response) => response.json() as Promise<T> }: SendOptions<T> = {},
): Promise<T | undefined> {
  count();
  const isBytes = body instanceof Uint8Array;
  try {
    const response = await fetch(url + path, {
      method,
      headers: {
        'content-type': isBytes ? 'application/octet-stream' : 'application/json',
        'x-app-key': key,
        ...headers,
      },
      ...(body !== undefined && { body: isBytes ? body : JSON.stringify(body) }),
      signal: AbortSignal.timeout(timeoutMs),
    });
    if (response.status === status) return await read(response);
    throw new Error(`${response.status} ${(await response.text()).slice(0, 200)}`);
  } catch (error) {
    const { message, cause } = error as Error & { cause?: NodeJS.ErrnoException };
    fail(`${method} ${path}: ${cause?.code ?? ''} ${message}`);
    return undefined;
  }
}

async function write(writer: number, round: number): Promise<void> {
  const id = `${process.pid}-${writer}-${round}`;
  const root = `${app}::traffic`;
  if (await send('POST', '/store', 202, { body: { root, data: [{ id, at: round }] } })) {
    result.written.push(id);
    const page = await send<{ records: unknown[] }>('POST', '/list', 200, { body: { root, find: { id } } });
    if (page && page.records.length !== 1) fail(`the document ${id} was read ${page.records.length} times`);
  }
  if (round % moneyEvery !== 0) return;
  const body = { amount: 1 + writer };
  await send('POST', `/api/apps/${app}/faucet`, 202, { body, headers: { 'x-operator-key': operatorKey } });
}

async function repeat(kind: string, work: Work, restMs: number): Promise<void> {
  result.kinds[kind] ??= 0;
  for (let round = 0; !isEnding; round++) {
    await work(round);
    result.kinds[kind] += 1;
    if (restMs > 0) await delay(restMs);
  }
}

async function main(): Promise<void> {
  const pause = Number(pauseMs);
  const others = otherKinds({ app, send, fail, uploaded: result.uploaded });
  for (const kind of without) delete others[kind];
  await Promise.all([
    ...Array.from({ length: Number(writers) }, (_, writer) => repeat('write', (round) => write(writer, round), pause)),
    ...Object.entries(others).map(([kind, work]) => repeat(kind, work, pause + otherPauseMs)),
  ]);
  console.log(JSON.stringify(result));
}

void main();
