import { setTimeout as delay } from 'node:timers/promises';
import { fetchJson } from './fetch-json';
import type { App, GranarySide } from './sides';

const stepMs = 100;
const stepsMax = 6_000;

/** An index, as the API takes it. */
interface IndexDefinition {
  name: string;
  collection: string;
  field_name: string;
  index_type: string;
  options?: object;
}

/** Creates an index of an app, and waits until it is built. */
export async function createIndex(
  side: Pick<GranarySide, 'url'>,
  name: string,
  { headers }: Pick<App, 'headers'>,
  definition: IndexDefinition,
): Promise<void> {
  const { ticket_id: ticket } = await fetchJson<{ ticket_id?: string }>(`${side.url}/api/apps/${name}/indexes`, {
    body: definition,
    headers,
    statuses: [201, 202],
  });
  for (let left = stepsMax; ticket && left > 0; left--) {
    const { status } = await fetchJson<{ status: string }>(`${side.url}/api/tasks/${ticket}`);
    if (status === 'Completed') return;
    if (status === 'Failed') throw new Error(`The index ${definition.name} was not built.`);
    await delay(stepMs);
  }
}

/** Creates a collection of an app. */
export const createCollection = (
  side: Pick<GranarySide, 'url'>,
  name: string,
  { headers }: Pick<App, 'headers'>,
  collection: string,
): Promise<unknown> =>
  fetchJson(`${side.url}/api/apps/${name}/collections`, { body: { name: collection }, headers, statuses: [201] });
