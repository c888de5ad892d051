import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';

const blobBytes = 50_000;
const taskPollMs = 200;
const taskLimitMs = 60_000;
/** Of the work of one process of clients. */
const own = `c${process.pid}_${Date.now()}`;

export const checksumOf = (bytes) => createHash('sha256').update(bytes).digest('hex');

/**
 * What clients do besides writing, as `{kind: (at) => Promise}`; `at` counts up from 0. Each notes its failures by
 * `send`, which returns undefined for them, and by `fail`. The checksums of acknowledged uploads go into `uploaded`, by
 * id.
 */
export function otherKinds({ app, send, fail, uploaded }) {
  return {
    blob: () => blob({ app, send, fail, uploaded }),
    query: (at) => query({ app, send }, at),
    view: view({ app, send, fail }),
    verification: () => verification({ send, fail }),
  };
}

async function blob({ app, send, fail, uploaded }) {
  const bytes = randomBytes(blobBytes);
  const blobs = `/api/apps/${app}/blobs/files`;
  const answer = await send('POST', blobs, 202, { body: bytes });
  if (!answer) return;
  const checksum = checksumOf(bytes);
  uploaded[answer.blob_id] = checksum;
  const read = async (response) => Buffer.from(await response.arrayBuffer());
  const found = await send('GET', `${blobs}/${answer.blob_id}`, 200, { read });
  if (found && checksumOf(found) !== checksum) fail(`the blob ${answer.blob_id} came back with other bytes`);
}

/** Done twice, the first of these would be a conflict, and the second not found. */
async function query({ app, send }, at) {
  const name = `query_${own}_${at}`;
  const queries = `/api/apps/${app}/queries`;
  const body = { name, source_collection: 'traffic', base_query: {} };
  if (await send('POST', queries, 201, { body })) await send('DELETE', `${queries}/${name}`, 200);
}

/** A view of its own, in which each write that was acknowledged before a refresh must be. */
function view({ app, send, fail }) {
  const root = `${app}::refreshed`;
  const views = `/api/apps/${app}/views`;
  const definition = { find: { client: own }, group_by: 'client', aggregate: { documents: { $count: '*' } } };
  let written = 0;
  let isMade = false;
  return async (at) => {
    if (await send('POST', '/store', 202, { body: { root, data: [{ id: `${own}-${at}`, client: own }] } }))
      written += 1;
    if (written === 0) return;
    if (!isMade) {
      const body = { name: own, query: definition, source_collections: ['refreshed'] };
      isMade = (await send('POST', views, 202, { body })) !== undefined;
    }
    const expected = written;
    const asked = isMade && (await send('POST', `${views}/${own}/refresh`, 202));
    if (!asked || !(await isCompleted({ send, fail }, asked.ticket_id))) return;
    const found = await send('GET', `/api/views/${app}/${own}/data`, 200);
    const documents = found?.records[0]?.documents ?? 0;
    if (found && documents < expected) fail(`a refreshed view counts ${documents} of ${expected} documents`);
  };
}

/** Whether a task ends well. */
async function isCompleted({ send, fail }, ticket) {
  for (const deadlineMs = Date.now() + taskLimitMs; Date.now() < deadlineMs; await delay(taskPollMs)) {
    const task = await send('GET', `/api/tasks/${ticket}`, 200);
    if (!task || task.status === 'Completed') return task !== undefined;
    if (typeof task.status !== 'object') continue;
    fail(`the task ${ticket} failed: ${JSON.stringify(task.status)}`);
    return false;
  }
  fail(`the task ${ticket} did not end within ${taskLimitMs / 1_000} s`);
  return false;
}

async function verification({ send, fail }) {
  const found = await send('POST', '/x402/verify', 200, { body: { paymentPayload: {}, paymentRequirements: {} } });
  const reason = found?.invalidReason;
  if (found && reason !== 'invalid_x402_version') fail(`a payment without a version was found ${reason}`);
}
