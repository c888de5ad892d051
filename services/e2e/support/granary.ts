import { randomBytes, randomUUID } from 'node:crypto';
import { basename, dirname } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { askTestStack, isSkippedWithout } from '@granary/testing/stack';
import stackSuites from '../stack-suites.json';
import type { DatabaseUrls } from './granary-databases';
import { operatorKey, type Transport, type Variant } from './granary-settings';
import type { LendRequest } from './granary-lenders';

export { operatorKey };

export interface Answer<T = Record<string, unknown>> {
  status: number;
  headers: Headers;
  body: T;
  text: string;
}

/** Jest runs suites of the front door in two passes, see jest.config.js: in one process, and on a stack. */
export const isOnStack = process.env['GRANARY_TEST_PASS'] === 'stack';

const { testPath } = expect.getState();
/** This suite, by `folder/name`. */
export const suite = `${basename(dirname(testPath!))}/${basename(testPath!, '.test.ts')}`;

/**
 * The services call each other over gRPC on the stack, too: in a run of both passes, suites that are there in each run
 * or in turn leave that out in one process.
 */
const isAlsoOnStack =
  process.env['GRANARY_TEST_PASSES'] === 'both' &&
  !isSkippedWithout('kafka', 'minio') &&
  /^(front-door|paying|operations)\//.test(suite) &&
  !(suite in stackSuites.never);
export const transports: readonly Transport[] = isOnStack ? ['stack'] : isAlsoOnStack ? ['direct'] : ['direct', 'wire'];

/** What the clients of a suite see of a Granary. */
export interface Granary {
  url: string;
  databaseUrls: DatabaseUrls;
  /** Ends it, or gives it back. */
  stop(): Promise<void>;
}

/**
 * A Granary that other suites of the run have too, in a process of its own: make an app for each test, count nothing of
 * the whole, and harm nothing. `stop` gives it back, and throws when it has crashed meanwhile. A suite that needs more,
 * or settings without a name, starts its own by `startGranary`.
 */
export async function borrowGranary(transport: Transport, variant: Variant = 'plain'): Promise<Granary> {
  const request: LendRequest = { suite, transport: isOnStack ? 'stack' : transport, variant };
  const { id, url, databaseUrls } = await askTestStack<Granary & { id: string }>('lend', request);
  return { url, databaseUrls, stop: () => askTestStack('takeBack', { id }) };
}

export type Body = string | Buffer | object | undefined;

/** One request; a body that is no text goes as JSON. */
export async function send<T = Record<string, unknown>>(
  url: string,
  method: string,
  path: string,
  options: { key?: string | undefined; body?: Body; headers?: Record<string, string> } = {},
): Promise<Answer<T>> {
  const { key, body, headers } = options;
  const isRaw = typeof body === 'string' || Buffer.isBuffer(body) || body instanceof FormData;
  const response = await fetch(url + path, {
    method,
    headers: {
      ...(body === undefined || body instanceof FormData ? {} : { 'content-type': 'application/json' }),
      ...(key === undefined ? {} : { 'x-app-key': key }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: isRaw ? (body as string) : JSON.stringify(body) }),
    redirect: 'manual',
  });
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false;
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: (isJson && text !== '' ? JSON.parse(text) : {}) as T,
  };
}

export interface TestApp {
  appId: string;
  key: string;
  /** A request with the app's first key. */
  call<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: Body,
    headers?: Record<string, string>,
  ): Promise<Answer<T>>;
  /** Stores documents and expects them to be stored. */
  store(collection: string, data: object[]): Promise<Answer<StoreAnswer>>;
  list<T = Record<string, unknown>>(collection: string, query?: object): Promise<Answer<ListAnswer<T>>>;
  /** Polls a ticket until its task has ended. */
  ended(ticketId: string): Promise<Task>;
}

export interface StoreAnswer {
  ticket_id: string;
  status: string;
  message: string;
  results: Array<{ id: string; celestia_height: number; blob_id: string; namespace: string }>;
}

export interface ListAnswer<T> {
  records: T[];
  total: number | null;
  page: number;
  limit: number;
}

export interface Task {
  ticket_id: string;
  status: string | { Failed: { error: string } };
  progress_log: string[];
  result?: Record<string, unknown>;
  [field: string]: unknown;
}

/** A fresh app of its own for a test. */
export async function newApp(granary: Pick<Granary, 'url'>, appId = `t-${randomUUID()}`): Promise<TestApp> {
  const made = await send<{ app_key: string }>(granary.url, 'POST', '/api/applications', {
    body: { app_id: appId, name: 'Test' },
    headers: { 'x-operator-key': operatorKey },
  });
  if (made.status !== 201) throw new Error(`no app: ${made.status} ${made.text}`);
  const key = made.body.app_key;
  const call: TestApp['call'] = (method, path, body, headers) =>
    send(granary.url, method, path, { key, body, ...(headers ? { headers } : {}) });
  return {
    appId,
    key,
    call,
    store: async (collection, data) => {
      const answer = await call<StoreAnswer>('POST', '/store', { root: `${appId}::${collection}`, data });
      if (answer.status !== 202) throw new Error(`not stored: ${answer.status} ${answer.text}`);
      return answer;
    },
    list: (collection, query = {}) => call('POST', '/list', { root: `${appId}::${collection}`, ...query }),
    ended: async (ticketId) => {
      const task = await eventually(async () => {
        const { status, body } = await call<Task>('GET', `/api/tasks/${ticketId}`);
        return status === 200 && (body.status === 'Completed' || typeof body.status === 'object') ? body : undefined;
      });
      return task;
    },
  };
}

export const randomText = (bytes: number): string => randomBytes(bytes).toString('base64url');
