import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { newCall, type Handlers } from '@granary/shared/rpc/types';
import { newTicket } from '@granary/shared/ids';
import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/shared/testing/database';
import { scaledMs } from '@granary/shared/testing/speed';
import { eventually } from '@granary/shared/testing/eventually';
import { dataConfig } from '../../src/config';
import { dataDefinition, startData } from '../../src/service';

type Service = Handlers<DataDefinition>;
/** The methods of the running service, each called as its gRPC clients do. */
export type Methods = { [M in keyof Service]: (request: Parameters<Service[M]>[0]) => ReturnType<Service[M]> };

export interface Fixture {
  methods: Methods;
  pool: Pool;
  /** Of the service's database. */
  url: string;
  skillsDirectory: string;
  newApp(): Promise<TestApp>;
  stop(): Promise<void>;
}

export interface TestApp {
  appId: string;
  number: bigint;
  createCollection(name: string, schema?: object, readAccess?: string): Promise<void>;
  createIndex(collection: string, field: string, type?: string): Promise<void>;
  createComposite(collection: string, fields: readonly string[], unique?: boolean): Promise<void>;
  /** Stores texts of documents, some hundreds at a time. */
  store(collection: string, texts: readonly string[]): Promise<void>;
  list(body: object): Promise<Page>;
  read(method: 'readCollection' | 'readView' | 'runQuery', name: string, query: Record<string, string>): Promise<Page>;
  /** Waits for the end of a job. */
  completed(ticketId: string): Promise<void>;
}

export interface Page {
  records: Array<Record<string, unknown>>;
  total: number | null;
  page: number;
  limit: number;
  [more: string]: unknown;
}

/** A whole data service over a database of its own. */
export async function startFixture(): Promise<Fixture> {
  const { url } = await testDatabase();
  const skillsDirectory = await mkdtemp(join(tmpdir(), 'granary-skills-'));
  const log = createLogger('data', 'silent');
  const config = dataConfig.parse({
    LISTEN: '127.0.0.1:0',
    DATABASE_URL: url,
    LOG_LEVEL: 'silent',
    SKILLS_DIRECTORY: skillsDirectory,
    PUBLIC_URL: 'http://granary.test/',
  });
  const service = await startData(config, { log, listen: false });
  const found = service.implementations.find(({ definition }) => (definition as unknown) === dataDefinition);
  const handlers = found!.handlers as unknown as Service;
  const methods = Object.fromEntries(
    Object.entries(handlers).map(([name, method]) => [
      name,
      (request: never) =>
        (method as (request: never, call: unknown) => unknown)(request, newCall('test', scaledMs(30_000))),
    ]),
  ) as unknown as Methods;
  const pool = createPool({ url, size: 2, applicationName: 'test', log });
  return {
    methods,
    pool,
    url,
    skillsDirectory,
    newApp: () => newApp(methods),
    stop: async () => {
      await pool.end();
      await service.stop();
      await rm(skillsDirectory, { recursive: true, force: true });
    },
  };
}

const noIdempotency = { caller: '', method: '', path: '', key: '', contentHash: Buffer.alloc(0) };

async function newApp(methods: Methods): Promise<TestApp> {
  const { application } = await methods.createApplication({
    name: 'Test',
    description: '',
    idempotency: noIdempotency,
  });
  const { appId } = application!;
  const number = BigInt(application!.number);
  const completed = async (ticketId: string): Promise<void> => {
    await eventually(async () => {
      const job = await methods.getJob({ ticketId });
      if (job.status === 'Failed') throw new Error(`the job failed: ${job.error}`);
      return job.status === 'Completed';
    });
  };
  const createIndex = async (collection: string, fields: readonly string[], indexType: string, unique: boolean) => {
    const ticketId = newTicket('j', number);
    const name = `${collection}_${fields.join('_')}`;
    const made = await methods.createIndex({
      ...{ appId, appNumber: number.toString(), name, collection, indexType, unique, ticketId },
      fieldName: fields[0]!,
      fields: [...fields],
    });
    if (made.ticketId !== '') await completed(made.ticketId);
  };
  return {
    appId,
    number,
    completed,
    createCollection: async (name, schema, readAccess = 'public') => {
      const schemaJson = schema === undefined ? '' : JSON.stringify(schema);
      await methods.createCollection({ appId, name, schemaJson, readAccess });
    },
    createIndex: (collection, field, type = 'btree') => createIndex(collection, [field], type, false),
    createComposite: (collection, fields, unique = false) => createIndex(collection, fields, 'composite', unique),
    store: async (collection, texts) => {
      for (let at = 0; at < texts.length; at += 500) {
        const data = texts.slice(at, at + 500).join(',');
        await methods.store({
          appId,
          appNumber: number.toString(),
          ticketId: newTicket('c', number),
          body: Buffer.from(`{"root":"${appId}::${collection}","data":[${data}]}`),
          idempotency: noIdempotency,
        });
      }
    },
    list: async (body) => parse(await methods.listDocuments({ appId, body: Buffer.from(JSON.stringify(body)) })),
    read: async (method, name, query) => {
      const parameters = Object.entries(query).map(([parameter, value]) => ({ name: parameter, value }));
      return parse(await methods[method]({ appId, name, parameters, mayReadPrivate: false }));
    },
  };
}

export const parse = ({ json }: { json: Buffer }): Page => JSON.parse(json.toString()) as Page;
