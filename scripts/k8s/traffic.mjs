// Clients of a gateway until SIGTERM: each writes a document and reads it, on connections that are kept. Prints a line of JSON:
// the requests, those that were acknowledged as written, and the first of those that failed.
const [url, key, app, connections] = process.argv.slice(2);
const headers = { 'content-type': 'application/json', 'x-app-key': key };
const result = { requests: 0, written: 0, failed: 0, failures: [] };
let isEnding = false;
process.on('SIGTERM', () => (isEnding = true));

async function send(path, body, wanted) {
  result.requests += 1;
  try {
    const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
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
  for (let at = 0; !isEnding; at++) {
    const id = `${process.pid}-${number}-${at}`;
    const root = `${app}::traffic`;
    if (await send('/store', { root, data: [{ id, at }] }, 202)) result.written += 1;
    const found = await send('/list', { root, find: { id } }, 200);
    if (found && found.records.length !== 1) {
      result.failed += 1;
      result.failures.push(`the document ${id} was not read`);
    }
  }
}

await Promise.all(Array.from({ length: Number(connections) }, (_, number) => client(number)));
console.log(JSON.stringify(result));
