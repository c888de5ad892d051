import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const usage = `Creates an application, stores a document, reads it, and deletes the application.

  granary smoke --url http://gateway:8080

OPERATOR_KEY, or OPERATOR_KEY_FILE with the name of its file, is the key of the operator. Ends with 1 when something fails.
`;
const requestTimeoutMs = 30_000;

/** @param {NodeJS.ProcessEnv} environment */
function readOperatorKey({ OPERATOR_KEY: key, OPERATOR_KEY_FILE: file }) {
  const found = key || (file && readFileSync(file, 'utf8').trim());
  if (!found) throw new Error(`OPERATOR_KEY or OPERATOR_KEY_FILE is required.\n\n${usage}`);
  return found;
}

/**
 * Sends a request, and returns the JSON of its answer. Throws if the status is not `wanted`.
 * @param {string} url @param {string} method @param {string} route
 * @param {{ headers: Record<string, string>, body?: object, wanted: number }} request
 */
async function send(url, method, route, { headers, body, wanted }) {
  const response = await fetch(new URL(route, url), {
    method,
    signal: AbortSignal.timeout(requestTimeoutMs),
    headers: { 'content-type': 'application/json', ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (response.status !== wanted) {
    throw new Error(`${method} ${route} answered ${response.status}, not ${wanted}: ${text.slice(0, 500)}`);
  }
  return text === '' ? undefined : JSON.parse(text);
}

/** @param {string} url @param {string} operatorKey */
async function run(url, operatorKey) {
  const operator = { 'x-operator-key': operatorKey };
  const created = await send(url, 'POST', '/api/applications', {
    headers: operator,
    body: { name: 'smoke test' },
    wanted: 201,
  });
  const { app_id: app, app_key: key } = created;
  try {
    const headers = { 'x-app-key': key };
    const document = { id: 'smoke', title: 'Grüße', price: 12.5, nonce: randomUUID() };
    const root = `${app}::smoke`;
    await send(url, 'POST', '/store', { headers, body: { root, data: [document] }, wanted: 202 });
    const { records } = await send(url, 'POST', '/list', {
      headers,
      body: { root, find: { id: 'smoke' } },
      wanted: 200,
    });
    const isSame =
      records.length === 1 && Object.entries(document).every(([name, value]) => records[0][name] === value);
    if (!isSame) throw new Error(`the document was read as ${JSON.stringify(records)}`);
    console.log(`${url}: a document was stored and read`);
  } finally {
    await send(url, 'DELETE', `/api/applications/${app}`, { headers: operator, wanted: 200 });
  }
}

/** What went wrong, with the reason of Node if a request could not be sent. @param {unknown} error */
function describe(error) {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}

try {
  const { values } = parseArgs({ options: { url: { type: 'string' }, help: { type: 'boolean', short: 'h' } } });
  if (values.help) console.log(usage);
  else if (!values.url) throw new Error(`--url is required.\n\n${usage}`);
  else await run(values.url, readOperatorKey(process.env));
} catch (error) {
  console.error(describe(error));
  process.exitCode = 1;
}
