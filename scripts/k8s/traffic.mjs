// Clients of a gateway until SIGTERM: `writers` write a document and read it, on connections that are kept, sometimes
// send money to the app, and pause; one of each other kind, see traffic-kinds.mjs, but those named last, pauses a
// little longer. Prints a line of JSON: how many requests were made, also by the second of the clock, what was
// acknowledged, and the first of those that failed.
import { setTimeout as delay } from 'node:timers/promises';
import { otherKinds } from './traffic-kinds.mjs';

const [url, key, app, writers, pauseMs, operatorKey, ...without] = process.argv.slice(2);
/** Of a client that sends money. */
const moneyEvery = 20;
/** So that these cost little beside the writers, each of whose requests is a change that must not be lost. */
const otherPauseMs = 150;
/** A gateway answers within 10 s. */
const timeoutMs = 15_000;
const failuresShown = 5;
const result = { requests: 0, requestsAt: {}, kinds: {}, written: [], uploaded: {}, failed: 0, failures: [] };
let isEnding = false;
process.on('SIGTERM', () => (isEnding = true));

function fail(text) {
  result.failed += 1;
  // The logs of the pods say more of that moment.
  if (result.failures.length < failuresShown) result.failures.push(`${new Date().toISOString()} ${text}`);
}

function count() {
  const second = Math.floor(Date.now() / 1_000);
  result.requests += 1;
  result.requestsAt[second] = (result.requestsAt[second] ?? 0) + 1;
}

/** Returns the body of an answer with the status `wanted`, by `read`; anything else is a failure, and undefined. */
async function send(method, path, wanted, { body, headers = {}, read = (response) => response.json() } = {}) {
  count();
  const isBytes = Buffer.isBuffer(body);
  try {
    const response = await fetch(url + path, {
      method,
      headers: {
        'content-type': isBytes ? 'application/octet-stream' : 'application/json',
        'x-app-key': key,
        ...headers,
      },
      body: isBytes || body === undefined ? body : JSON.stringify(body),
      signal: AbortSignal.timeout(timeoutMs),
    });
    if (response.status === wanted) return await read(response);
    throw new Error(`${response.status} ${(await response.text()).slice(0, 200)}`);
  } catch (error) {
    fail(`${method} ${path}: ${error.cause?.code ?? ''} ${error.message}`);
    return undefined;
  }
}

async function write(writer, at) {
  const id = `${process.pid}-${writer}-${at}`;
  const root = `${app}::traffic`;
  if (await send('POST', '/store', 202, { body: { root, data: [{ id, at }] } })) {
    result.written.push(id);
    const found = await send('POST', '/list', 200, { body: { root, find: { id } } });
    if (found && found.records.length !== 1) fail(`the document ${id} was read ${found.records.length} times`);
  }
  if (at % moneyEvery !== 0) return;
  const body = { amount: 1 + writer };
  await send('POST', `/api/apps/${app}/faucet`, 202, { body, headers: { 'x-operator-key': operatorKey } });
}

async function repeat(kind, once, ownPauseMs) {
  result.kinds[kind] ??= 0;
  for (let at = 0; !isEnding; at++) {
    await once(at);
    result.kinds[kind] += 1;
    if (ownPauseMs > 0) await delay(ownPauseMs);
  }
}

const pause = Number(pauseMs);
const others = otherKinds({ app, send, fail, uploaded: result.uploaded });
for (const kind of without) delete others[kind];
await Promise.all([
  ...Array.from({ length: Number(writers) }, (_, writer) => repeat('write', (at) => write(writer, at), pause)),
  ...Object.entries(others).map(([kind, once]) => repeat(kind, once, pause + otherPauseMs)),
]);
console.log(JSON.stringify(result));
