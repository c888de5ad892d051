import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { startTelemetry } from '@granary/shared/telemetry/start';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { isSkippedWithout } from '@granary/testing/stack';
import {
  databaseServices,
  startConstellation,
  type ConstellationOptions,
  type DatabaseService,
} from '@granary/local/start/constellation';
import stackSuites from '../stack-suites.json';
import { startStackGranary } from './stack-granary';

export const operatorKey = 'operator-key-of-the-tests';

export interface Answer<T = Record<string, unknown>> {
  status: number;
  headers: Headers;
  body: T;
  text: string;
}

/** In one process, by calls or over gRPC; or as a stack: a process for each service, on Kafka and MinIO. */
export type Transport = 'direct' | 'wire' | 'stack';

/** Jest runs the suites of the front door in two passes, see jest.config.js: in one process, and on a stack. */
export const isOnStack = process.env['GRANARY_TEST_PASS'] === 'stack';
/**
 * The services call each other over gRPC on the stack, too: where a suite is part of both passes of a run, the one in one
 * process leaves that out.
 */
const suite = expect.getState().testPath!;
const isOnStackToo =
  process.env['GRANARY_TEST_PASSES'] === 'both' &&
  !isSkippedWithout('kafka', 'minio') &&
  ['front-door', 'paying', 'operations'].includes(basename(dirname(suite))) &&
  !(`${basename(dirname(suite))}/${basename(suite, '.test.ts')}` in stackSuites.never);
export const transports: readonly Transport[] = isOnStack ? ['stack'] : isOnStackToo ? ['direct'] : ['direct', 'wire'];

export interface Granary {
  url: string;
  databaseUrls: Record<DatabaseService, string>;
  /** host:port of each process that tells metrics; in one process none does unless it was asked for. */
  metricsAddresses: string[];
  /** Stops it and starts it again on the same databases. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface GranaryOptions extends Pick<ConstellationOptions, 'settings'> {
  databaseUrls?: Partial<Record<DatabaseService, string>>;
  /** Has one process tell its metrics; those of a stack always do. */
  metrics?: boolean;
}

/** On a slow machine requests may take longer, and scans without a key too, for its users as for its tests. */
const patience = {
  gateway: {
    REQUEST_TIMEOUT_MS: String(Math.min(limitMs(10_000), 600_000)),
    QUEUE_TIMEOUT_MS: String(Math.min(limitMs(1_000), 60_000)),
  },
  data: { PUBLIC_READ_TIMEOUT_MS: String(Math.min(limitMs(2_000), 60_000)) },
};

/**
 * The whole of Granary on fresh databases of the suite's Postgres, seen through HTTP only. In the pass on a stack it is
 * one, whatever `transport` says.
 */
export async function startGranary(transport: Transport, options: GranaryOptions = {}): Promise<Granary> {
  const directory = await mkdtemp(join(tmpdir(), 'granary-suite-'));
  const urls = await Promise.all(
    databaseServices.map(async (service) => [service, (await testDatabase()).url] as const),
  );
  const databaseUrls = { ...(Object.fromEntries(urls) as Record<DatabaseService, string>), ...options.databaseUrls };
  const common = {
    databaseUrls,
    directory,
    operatorKey,
    internalSecret: 'internal-secret-of-the-tests-0123456789',
    settings: {
      ...options.settings,
      gateway: { ...patience.gateway, ...options.settings?.gateway },
      data: { ...patience.data, ...options.settings?.data },
    },
  };
  const removeDirectory = () => rm(directory, { recursive: true, force: true });
  if (isOnStack || transport === 'stack') {
    const stack = await startStackGranary(common);
    return { ...stack, databaseUrls, stop: () => stack.stop().finally(removeDirectory) };
  }

  const log = createLogger('test', process.env['TEST_LOG_LEVEL'] ?? 'silent');
  // Services of this process that start later tell theirs there too.
  const telemetry = options.metrics
    ? await startTelemetry('granary-test', { METRICS_LISTEN: '127.0.0.1:0' }, log)
    : undefined;
  const start = () => startConstellation({ ...common, host: '127.0.0.1', port: 0, transport, log });
  let running = await start();
  return {
    get url() {
      return running.url;
    },
    databaseUrls,
    metricsAddresses: telemetry?.metricsAddress === undefined ? [] : [telemetry.metricsAddress],
    restart: async () => {
      await running.stop();
      running = await start();
    },
    stop: async () => {
      await running.stop();
      await telemetry?.stop();
      await removeDirectory();
    },
  };
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
