import { newTicket } from '@granary/shared/ids';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { serviceDatabase } from '@granary/testing/service-database';
import { eventually } from '@granary/testing/eventually';
import { dataSchema } from '../../src/service';
import { log, newApp, startDataService, storeRequest, type DataService, type Methods } from './data-service';

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
  createFullText(collection: string, field: string, language: string): Promise<void>;
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

/** A whole data service over a database of its own; `settings` are variables of its environment. */
export async function startFixture(settings: Record<string, string> = {}): Promise<Fixture> {
  const { url } = await serviceDatabase(dataSchema);
  const service = await startDataService(url, settings);
  const pool = createPool({ url, size: 2, applicationName: 'test', log });
  return {
    methods: service.methods,
    pool,
    url,
    skillsDirectory: service.skillsDirectory,
    newApp: () => newTestApp(service),
    stop: async () => {
      await pool.end();
      await service.stop();
    },
  };
}

async function newTestApp(service: DataService): Promise<TestApp> {
  const { methods } = service;
  const app = await newApp(service);
  const { appId, number } = app;
  const completed = async (ticketId: string): Promise<void> => {
    await eventually(async () => {
      const job = await methods.getJob({ ticketId });
      if (job.status === 'Failed') throw new Error(`the job failed: ${job.error}`);
      return job.status === 'Completed';
    });
  };
  const createIndex = async (
    collection: string,
    fields: readonly string[],
    indexType: string,
    unique = false,
    language?: string,
  ) => {
    const ticketId = newTicket('j', number);
    const name = `${collection}_${fields.join('_')}${language === undefined ? '' : '_words'}`;
    const made = await methods.createIndex({
      appId,
      appNumber: number.toString(),
      name,
      collection,
      indexType,
      unique,
      ticketId,
      ...(language === undefined ? {} : { language }),
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
    createIndex: (collection, field, type = 'btree') => createIndex(collection, [field], type),
    createFullText: (collection, field, language) => createIndex(collection, [field], 'fulltext', false, language),
    createComposite: (collection, fields, unique = false) => createIndex(collection, fields, 'composite', unique),
    store: async (collection, texts) => {
      for (let at = 0; at < texts.length; at += 500) {
        await methods.store(storeRequest(app, collection, `[${texts.slice(at, at + 500).join(',')}]`));
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
