// helm test: an application is made, stores and lists a document, and is deleted.
import { readFileSync } from 'node:fs';

const url = process.env.GATEWAY_URL;
const operator = { 'x-operator-key': readFileSync(process.env.OPERATOR_KEY_FILE, 'utf8').trim() };

async function call(method, path, status, { headers = {}, body } = {}) {
  const signal = AbortSignal.timeout(15_000);
  const init = { method, signal, headers: { 'content-type': 'application/json', ...headers } };
  const response = await fetch(url + path, body === undefined ? init : { ...init, body: JSON.stringify(body) });
  const text = await response.text();
  if (response.status !== status) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 500)}`);
  console.log(`${method} ${path}: ${status}`);
  return text === '' ? undefined : JSON.parse(text);
}

await call('GET', '/health', 200);
const made = await call('POST', '/api/applications', 201, { headers: operator, body: { name: 'helm test' } });
const { app_id: app, app_key: key } = made;
try {
  const headers = { 'x-app-key': key };
  const root = `${app}::smoke`;
  await call('POST', '/store', 202, { headers, body: { root, data: [{ id: 'one', title: 'Grüße' }] } });
  const { records } = await call('POST', '/list', 200, { headers, body: { root, find: { id: 'one' } } });
  if (records[0]?.title !== 'Grüße') throw new Error(`listed ${JSON.stringify(records)}`);
} finally {
  await call('DELETE', `/api/applications/${app}`, 200, { headers: operator });
}
