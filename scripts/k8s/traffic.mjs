// Clients of a gateway until SIGTERM, and until they have made as many requests as asked for: each writes a document and reads
// it, on connections that are kept, sometimes sends money to the app, and pauses. Prints a line of JSON: the requests, the ids
// that were acknowledged as written, and the first of those that failed.
import { setTimeout as delay } from 'node:timers/promises';

const [url, key, app, connections, requestsMin, pauseMs, operatorKey] = process.argv.slice(2);
const appHeaders = { 'content-type': 'application/json', 'x-app-key': key };
const operatorHeaders = { 'content-type': 'application/json', 'x-operator-key': operatorKey };
/** Of a client that sends money. */
const moneyEvery = 20;
/** A gateway answers within 10 s. */
const timeoutMs = 15_000;
const result = { requests: 0, written: [], failed: 0, failures: [] };
let isEnding = false;
process.on('SIGTERM', () => (isEnding = true));

async function send(path, body, wanted, headers = appHeaders) {
  result.requests += 1;
  try {
    const signal = AbortSignal.timeout(timeoutMs);
    const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body), signal });
    const text = await response.text();
    if (response.status === wanted) return JSON.parse(text);
    throw new Error(`${response.status} ${text.slice(0, 200)}`);
  } catch (error) {
    result.failed += 1;
    if (result.failures.length < 5) result.failures.push(`${path}: ${error.cause?.code ?? ''} ${error.message}`);
    return undefined;
  }
}

async function client(number) {
  for (let at = 0; !isEnding || result.requests < Number(requestsMin); at++) {
    const id = `${process.pid}-${number}-${at}`;
    const root = `${app}::traffic`;
    if (await send('/store', { root, data: [{ id, at }] }, 202)) {
      result.written.push(id);
      const found = await send('/list', { root, find: { id } }, 200);
      if (found && found.records.length !== 1) {
        result.failed += 1;
        result.failures.push(`the document ${id} was read ${found.records.length} times`);
      }
    }
    if (at % moneyEvery === 0) await send(`/api/apps/${app}/faucet`, { amount: 1 + number }, 202, operatorHeaders);
    if (Number(pauseMs) > 0) await delay(Number(pauseMs));
  }
}

await Promise.all(Array.from({ length: Number(connections) }, (_, number) => client(number)));
console.log(JSON.stringify(result));
