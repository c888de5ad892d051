import { setTimeout as delay } from 'node:timers/promises';
import { fetchJson } from './fetch-json.mjs';

const stepMs = 100;
const stepsMax = 6_000;

/** Creates an index of an app, `{name, collection, field_name, index_type}`, and waits until it is built. */
export async function createIndex(side, name, { headers }, definition) {
  const { ticket_id: ticket } = await fetchJson(`${side.url}/api/apps/${name}/indexes`, {
    body: definition,
    headers,
    statuses: [201, 202],
  });
  for (let left = stepsMax; ticket && left > 0; left--) {
    const { status } = await fetchJson(`${side.url}/api/tasks/${ticket}`);
    if (status === 'Completed') return;
    if (status === 'Failed') throw new Error(`The index ${definition.name} was not built.`);
    await delay(stepMs);
  }
}

export const createCollection = (side, name, { headers }, collection) =>
  fetchJson(`${side.url}/api/apps/${name}/collections`, { body: { name: collection }, headers, statuses: [201] });
