import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';

const blobBytes = 50_000;
const taskPollMs = 200;
const taskLimitMs = 60_000;
/** Marks the work of this process of clients. */
const clientName = `c${process.pid}_${Date.now()}`;

/** How clients send a request. */
export interface SendOptions<T> {
  /** The body: bytes are sent as they are, anything else as JSON. */
  body?: unknown;
  headers?: Record<string, string>;
  /** Reads the body of the answer; by default as JSON. */
  read?: (response: Response) => Promise<T>;
}

/**
 * Sends a request, and returns the body of an answer with the `status`. Counts anything else as a failure, and returns
 * undefined.
 */
export type Send = <T = unknown>(
  method: string,
  path: string,
  status: number,
  options?: SendOptions<T>,
) => Promise<T | undefined>;

/** Work of clients, which they do again and again; `round` counts up from 0. */
export type Work = (round: number) => Promise<void>;

/** The tools for the work of clients. */
interface Tools {
  /** The id of their app. */
  app: string;
  send: Send;
  /** Notes a failure. */
  fail: (text: string) => void;
  /** Takes the checksums of acknowledged uploads, by id. */
  uploaded: Record<string, string>;
}

export const checksumOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** The work that clients do besides writing, by its kind. */
export function otherKinds(tools: Tools): Record<string, Work> {
  return {
    blob: () => blob(tools),
    query: (round) => query(tools, round),
    view: view(tools),
    verification: () => verification(tools),
  };
}

async function blob({ app, send, fail, uploaded }: Tools): Promise<void> {
  const bytes = randomBytes(blobBytes);
  const blobs = `/api/apps/${app}/blobs/files`;
  const answer = await send<{ blob_id: string }>('POST', blobs, 202, { body: bytes });
  if (!answer) return;
  const checksum = checksumOf(bytes);
  uploaded[answer.blob_id] = checksum;
  const read = async (response: Response): Promise<Buffer> => Buffer.from(await response.arrayBuffer());
  const received = await send('GET', `${blobs}/${answer.blob_id}`, 200, { read });
  if (received && checksumOf(received) !== checksum) fail(`the blob ${answer.blob_id} came back with other bytes`);
}

/**
 * Creates and deletes a query. Each request shows if it is done twice: creating would then be a conflict, and deleting
 * would find nothing.
 */
async function query({ app, send }: Tools, round: number): Promise<void> {
  const name = `query_${clientName}_${round}`;
  const queries = `/api/apps/${app}/queries`;
  const body = { name, source_collection: 'traffic', base_query: {} };
  if (await send('POST', queries, 201, { body })) await send('DELETE', `${queries}/${name}`, 200);
}

interface ViewData {
  records: { documents?: number }[];
}

/** Refreshes a view of its own, which must then have each write that was acknowledged before the refresh. */
function view({ app, send, fail }: Tools): Work {
  const root = `${app}::refreshed`;
  const views = `/api/apps/${app}/views`;
  const definition = { find: { client: clientName }, group_by: 'client', aggregate: { documents: { $count: '*' } } };
  let written = 0;
  let isMade = false;
  return async (round) => {
    if (
      await send('POST', '/store', 202, {
        body: { root, data: [{ id: `${clientName}-${round}`, client: clientName }] },
      })
    )
      written += 1;
    if (written === 0) return;
    if (!isMade) {
      const body = { name: clientName, query: definition, source_collections: ['refreshed'] };
      isMade = (await send('POST', views, 202, { body })) !== undefined;
    }
    const expected = written;
    if (!isMade) return;
    const refresh = await send<{ ticket_id: string }>('POST', `${views}/${clientName}/refresh`, 202);
    if (!refresh || !(await isCompleted({ send, fail }, refresh.ticket_id))) return;
    const data = await send<ViewData>('GET', `/api/views/${app}/${clientName}/data`, 200);
    const documents = data?.records[0]?.documents ?? 0;
    if (data && documents < expected) fail(`a refreshed view counts ${documents} of ${expected} documents`);
  };
}

/** Waits until a task ends. Returns whether it ended well. */
async function isCompleted({ send, fail }: Pick<Tools, 'send' | 'fail'>, ticket: string): Promise<boolean> {
  for (const deadlineMs = Date.now() + taskLimitMs; Date.now() < deadlineMs; await delay(taskPollMs)) {
    const task = await send<{ status: unknown }>('GET', `/api/tasks/${ticket}`, 200);
    if (!task || task.status === 'Completed') return task !== undefined;
    if (typeof task.status !== 'object') continue;
    fail(`the task ${ticket} failed: ${JSON.stringify(task.status)}`);
    return false;
  }
  fail(`the task ${ticket} did not end within ${taskLimitMs / 1_000} s`);
  return false;
}

async function verification({ send, fail }: Tools): Promise<void> {
  const body = { paymentPayload: {}, paymentRequirements: {} };
  const verdict = await send<{ invalidReason?: string }>('POST', '/x402/verify', 200, { body });
  const reason = verdict?.invalidReason;
  if (verdict && reason !== 'invalid_x402_version') fail(`a payment without a version was found ${reason}`);
}
