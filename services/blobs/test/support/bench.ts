import { mkdtemp, readdir } from 'node:fs/promises';
import { request as send, type ClientRequest, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { append, outboxImplementation, type OutgoingEvent } from '@granary/shared/bus/outbox';
import { busMigrations } from '@granary/shared/bus/migrations';
import { prepareOutbox } from '@granary/shared/bus/epoch';
import { createSignal } from '@granary/shared/concurrency/signal';
import { readConfig } from '@granary/shared/config';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { BlobsDefinition } from '@granary/shared/gen/granary/blobs/v1/Blobs';
import { permitHeader, signPermit, uploadMethod, type UploadPermit } from '@granary/shared/trust/transfer-permit';
import { openClient } from '@granary/shared/grpc/client';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { newCall, type Client } from '@granary/shared/rpc/types';
import { newDocumentId, newTicket } from '@granary/shared/ids';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import { openTrust } from '@granary/shared/trust/trust';
import { testDatabase } from '@granary/testing/database';
import { serviceDatabase } from '@granary/testing/service-database';
import { callKey, secretOf } from '@granary/shared/trust/token';
import { limitMs } from '@granary/testing/speed';
import { blobsConfig, type BlobsConfig } from '@granary/blobs/config';
import { blobsDefinition } from '@granary/blobs/handlers';
import { blobsSchema, startBlobs, type RunningBlobs } from '@granary/blobs/service';
import { commitsInMemory, type Commits } from './commits';

export const secret = 'a secret of the tests that is long enough';
const log = createLogger('blobs', 'silent');

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  json: () => Record<string, unknown>;
}

export interface Bench {
  store: TestStore;
  commits: Commits;
  pool: Pool;
  config: BlobsConfig;
  running: RunningBlobs;
  client: Client<BlobsDefinition>;
  outbox: Client<OutboxDefinition>;
  /** Says something on behalf of data. */
  publish(event: OutgoingEvent): Promise<void>;
  restart(changes?: Partial<BlobsConfig>): Promise<void>;
  upload(
    headers: Record<string, string>,
    body: Buffer | Iterable<Buffer>,
    permit?: Partial<UploadPermit>,
  ): Promise<Answer>;
  read(blobId: string, headers?: Record<string, string>, method?: string): Promise<Answer>;
  /** The names of the objects in the store, and of those that are still being taken in. */
  files(): Promise<string[]>;
  stop(): Promise<void>;
}

/** The store of a bench: settings of the service, and a look at all objects in it. */
export interface TestStore {
  settings: Record<string, string>;
  /** Whether an upload can be seen among the contents as soon as something of it has arrived. */
  showsArrivals: boolean;
  contents(): Promise<string[]>;
}

async function filesStore(): Promise<TestStore> {
  const directory = await mkdtemp(join(tmpdir(), 'granary-blobs-'));
  return {
    settings: { OBJECTS_DIR: directory },
    showsArrivals: true,
    contents: async () => {
      const entries = await readdir(directory, { recursive: true, withFileTypes: true });
      return entries.filter((entry) => entry.isFile() && entry.name !== 'probe').map((entry) => entry.name);
    },
  };
}

let openStore = filesStore;

/** Lets the benches of this test file keep their objects elsewhere. */
export function useStore(open: () => Promise<TestStore>): void {
  openStore = open;
}

export const appId = 'cinema';
export const collection = 'posters';

export function uploadGrant(changes: Partial<UploadPermit> = {}): UploadPermit {
  return {
    op: 'upload',
    appId,
    appNumber: '7',
    collection,
    ticketId: newTicket('c', 7n),
    blobId: newDocumentId(),
    caller: 'key_1',
    method: 'POST',
    path: '/apps/cinema/blobs/posters',
    idempotencyKey: null,
    maxBytes: 64 * 1024 * 1024,
    isPaid: true,
    isHeld: false,
    ...changes,
  };
}

export function signed(permit: Parameters<typeof signPermit>[1]): Record<string, string> {
  const key = callKey(secretOf(secret, 'gateway'), 'gateway', 'blobs');
  return { [permitHeader]: signPermit(key, permit), 'x-request-id': 'test' };
}

/** A request to the internal listener that the caller writes to. */
export function open(address: string, method: string, headers: Record<string, string>): ClientRequest {
  const [host, port] = address.split(':');
  return send({ host, port: Number(port), method, path: '/blob', headers, agent: false });
}

export function answerOf(request: ClientRequest): Promise<Answer> {
  return new Promise((resolve, reject) => {
    request.once('error', reject);
    request.once('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('error', reject);
      response.once('end', () => {
        const body = Buffer.concat(chunks);
        const json = () => JSON.parse(body.toString()) as Record<string, unknown>;
        resolve({ status: response.statusCode!, headers: response.headers, body, json });
        request.destroy();
      });
    });
  });
}

/** The service on a database and a directory of its own; the data service is its in-memory part, see commits.ts. */
export async function startBench(changes: Partial<BlobsConfig> = {}): Promise<Bench> {
  const store = await openStore();
  const { url } = await serviceDatabase(blobsSchema);
  const dataPool = createPool({ url: (await testDatabase()).url, size: 2, applicationName: 'test', log });
  await applyMigrations(dataPool, 'bus', busMigrations);
  await prepareOutbox(dataPool);
  const appended = createSignal();
  const dataOutbox = outboxImplementation({
    pool: dataPool,
    log,
    appended,
    signer: openTrust('data', { INTERNAL_SECRET: secret }, log).signer,
  });
  const pool = createPool({ url, size: 2, applicationName: 'test', log });
  const commits = commitsInMemory();
  const environment = { DATABASE_URL: url, INTERNAL_SECRET: secret, LOG_LEVEL: 'silent', ...store.settings };
  const config = { ...readConfig(blobsConfig, environment), ...changes };
  const start = (with_: BlobsConfig) =>
    startBlobs(with_, {
      log,
      listen: false,
      data: { implementation: commits.implementation },
      dataOutbox: { implementation: dataOutbox },
    });

  const bench: Bench = {
    store,
    commits,
    pool,
    config,
    running: await start(config),
    client: undefined as never,
    outbox: undefined as never,
    publish: async (event) => {
      await transaction(dataPool, (tx) => append(tx, [event]));
      appended.notify();
    },
    restart: async (more = {}) => {
      await bench.running.stop();
      bench.running = await start({ ...config, ...more });
      connect();
    },
    upload: async (headers, body, permit) => {
      const sign = signed({ ...uploadGrant(permit), expiresAtMs: Date.now() + limitMs(10_000) });
      const method = uploadMethod({ isIdChosen: permit?.isIdChosen === true });
      const request = open(bench.running.httpAddress, method, { ...sign, ...headers });
      const answer = answerOf(request);
      // A refusal can come while the body is still being sent.
      request.on('error', () => {});
      if (Buffer.isBuffer(body)) request.end(body);
      else {
        for (const chunk of body) request.write(chunk);
        request.end();
      }
      return answer;
    },
    read: async (blobId, headers = {}, method = 'GET') => {
      const permit = { op: 'read', appId, collection, blobId, expiresAtMs: Date.now() + limitMs(10_000) } as const;
      const request = open(bench.running.httpAddress, method, { ...signed(permit), ...headers });
      request.end();
      return answerOf(request);
    },
    files: () => store.contents(),
    stop: async () => {
      await bench.running.stop();
      await pool.end();
      await dataPool.end();
    },
  };
  const connect = () => {
    const implementationOf = <D>(at: number) => bench.running.implementations[at] as unknown as D;
    bench.client = openClient(
      blobsDefinition,
      { implementation: implementationOf<Implementation<BlobsDefinition>>(0) },
      { log },
    ).client;
    const outbox = implementationOf<Implementation<OutboxDefinition>>(1);
    bench.outbox = openClient(outbox.definition, { implementation: outbox }, { log }).client;
  };
  connect();
  return bench;
}

export interface Part {
  name: string;
  content: Buffer | string;
  filename?: string;
  type?: string;
}

/** A multipart/form-data body and its header. */
export function form(...parts: Part[]): { headers: Record<string, string>; body: Buffer } {
  const boundary = 'boundary-of-the-test';
  const chunks = parts.flatMap(({ name, content, filename, type }) => [
    Buffer.from(
      `--${boundary}\r\nContent-Disposition: form-data; name="${name}"${filename === undefined ? '' : `; filename="${filename}"`}\r\n` +
        `${type === undefined ? '' : `Content-Type: ${type}\r\n`}\r\n`,
    ),
    Buffer.from(content),
    Buffer.from('\r\n'),
  ]);
  const body = Buffer.concat([...chunks, Buffer.from(`--${boundary}--\r\n`)]);
  return {
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}`, 'content-length': String(body.length) },
    body,
  };
}

export const call = () => newCall('test', limitMs(5_000));
