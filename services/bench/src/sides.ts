import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { DatabaseService } from '@granary/local/start/constellation';
import type { BareCalls } from './baselines/bare';
import type { UsualCalls } from './baselines/usual';
import type { Calls } from './child';
import { fetchJson } from './fetch-json';
import type { EmbeddedCalls, ServiceSettings } from './granary/embedded';
import type { GatewayCalls } from './granary/gateway';
import type { ServicesCalls } from './granary/services';
import type { LoadRequest } from './load';
import { startProcess, type Child, type RunningProcess } from './processes';
import { recordOf } from './records';
import { baselineRequests, granaryRequests, type GranaryRequests, type RunName } from './runs';
import type { Tools } from './tools';

const app = 'bench';
const services: DatabaseService[] = ['payments', 'data', 'blobs', 'finance', 'tasks'];

export type GranarySideName = 'embedded' | 'split';
export type BaselineName = 'usual' | 'bare';
export type SideName = GranarySideName | BaselineName;

/** The sides: Granary in two topologies, and the two baselines. */
export const sideTitles: Record<SideName, string> = {
  embedded: 'Granary, all services in one process',
  split: 'Granary, gateway and services in two processes',
  usual: 'express, pg, jsonb, rows parsed, res.json',
  bare: 'node:http, pg, prepared statements, text passed through',
};

export const granarySides: SideName[] = ['embedded', 'split'];

/**
 * The numbers of documents and files that a side has accepted, by collection; `count(collection)` must return the same.
 */
export interface Accepted {
  documents: number;
  writes: number;
  files: number;
}

/** A side that runs. */
export interface Side {
  name: SideName;
  /** The prefix of the names of its databases. */
  prefix: string;
  port: number;
  url: string;
  /** Its processes, and their ids by name. */
  children: Array<{ process: string; child: RunningProcess }>;
  pids: Record<string, number>;
  /** The requests of its runs, and the request that loads the documents. */
  requests: Record<RunName | 'load', LoadRequest>;
  /** How many documents or files a collection has. */
  count: (collection: string) => Promise<number>;
  /** Facts that the readers of its figures should know. */
  notes: string[];
  /** The number of the next new document. */
  nextNumber: number;
  accepted: Accepted;
}

/** Granary as a side: its first app is the one that is measured. */
export interface GranarySide extends Side {
  requests: GranaryRequests;
  openApp: (name: string) => Promise<App>;
  blobRequests: App['blobRequests'];
  operatorHeaders: Record<string, string>;
  /** Another app with documents, once there is one. */
  neighbour?: LoadedApp;
}

/** An app of Granary. */
export interface App {
  /** The headers that carry the key of the app. */
  headers: Record<string, string>;
  requests: GranaryRequests;
  /** Creates its collections and their indexes. Returns notes. */
  prepare: (wantsComposite: boolean) => Promise<string[]>;
  count: (collection: string) => Promise<number>;
  /** Uploads of this size, and downloads of a blob that is uploaded now. */
  blobRequests: (sizeBytes: number) => Record<'upload' | 'download', () => Promise<LoadRequest>>;
}

/** An app that requests are sent to. */
export interface LoadedApp {
  port: number;
  requests: GranaryRequests;
  nextNumber: number;
  accepted: { writes: number };
}

export interface SideOptions extends Pick<Tools, 'postgres' | 'directory' | 'onStart'> {
  /** The name of this start, for a side that is started more than once; by default the name of the side. */
  as?: string;
  /** Whether to try a composite index. */
  wantsComposite?: boolean;
  /** Settings of the object store, for the side in two processes. */
  objectStore?: Record<string, string>;
  /** Variables that are added to the environment of its processes. */
  env?: NodeJS.ProcessEnv;
  /** Settings of services, for the side in one process. */
  settings?: ServiceSettings;
}

/** Starts a process of a side, and names it. */
type Start = <C extends Calls>(process: string, file: string) => { process: string; child: Child<C> };

interface StartOptions extends Pick<SideOptions, 'postgres' | 'objectStore' | 'settings'> {
  directory: string;
  prefix: string;
  start: Start;
}

/** The members of a side that are known once its processes run. */
type StartedSide = Pick<Side, 'port' | 'url' | 'children' | 'requests' | 'count'> & Partial<Pick<App, 'prepare'>>;
type StartedGranary = StartedSide & Pick<GranarySide, 'openApp' | 'blobRequests' | 'operatorHeaders'>;

/** The Node flags of `npm start`; the baselines run with Node's defaults. */
const manifest = JSON.parse(readFileSync(path.join(__dirname, '../../../package.json'), 'utf8')) as {
  scripts: { start: string };
};
const nodeFlags = manifest.scripts.start.split(' ').filter((word) => word.startsWith('--'));

const starts: Record<SideName, (options: StartOptions) => Promise<StartedSide>> = {
  embedded: startEmbedded,
  split: startSplit,
  usual: (options) => startBaseline('usual', options),
  bare: (options) => startBaseline('bare', options),
};

/** Starts one side, with its own databases on the shared Postgres. */
export async function startSide(name: GranarySideName, options: SideOptions): Promise<GranarySide>;
export async function startSide(name: SideName, options: SideOptions): Promise<Side>;
export async function startSide(name: SideName, options: SideOptions): Promise<Side> {
  const { as = name, wantsComposite = false, onStart, env, directory, ...others } = options;
  const folder = path.join(directory, as);
  await mkdir(folder);
  const prefix = `bench_${as}`;
  const start: Start = (process, file) => {
    const child = startProcess<Calls>(file, env, file.startsWith('granary/') ? nodeFlags : []);
    onStart(child);
    return { process, child };
  };
  const side = await starts[name]({ ...others, directory: folder, prefix, start });
  const notes = side.prepare ? await side.prepare(wantsComposite) : [];
  const pids = Object.fromEntries(side.children.map(({ process, child }) => [process, child.pid]));
  const accepted = { documents: 0, writes: 0, files: 0 };
  // The numbers of new documents come after those of the loaded ones.
  return { name, prefix, notes, pids, nextNumber: 10_000_000, accepted, ...side };
}

export const isGranary = (side: Side): side is GranarySide => 'openApp' in side;

async function startBaseline(name: BaselineName, options: StartOptions): Promise<StartedSide> {
  const { postgres, directory, prefix, start } = options;
  const urls = await postgres.call('makeDatabases', [prefix]);
  const { process, child } = start<UsualCalls | BareCalls>(name, `baselines/${name}.js`);
  const { port } = await child.call('start', { databaseUrl: urls[prefix]!, directory });
  const url = `http://127.0.0.1:${port}`;
  const count = async (collection: string) => (await fetchJson<{ count: number }>(`${url}/${collection}/count`)).count;
  return { port, url, children: [{ process, child }], requests: baselineRequests, count };
}

async function startEmbedded(options: StartOptions): Promise<StartedGranary> {
  const { postgres, directory, prefix, start, settings } = options;
  const secrets = makeSecrets();
  const databaseUrls = await serviceDatabases(postgres, prefix);
  const embedded = start<EmbeddedCalls>('granary', 'granary/embedded.js');
  const { port } = await embedded.child.call('start', {
    databaseUrls,
    directory,
    ...secrets,
    ...(settings && { settings }),
  });
  return granarySide(port, [embedded], secrets);
}

async function startSplit(options: StartOptions): Promise<StartedGranary> {
  const { postgres, directory, prefix, start, objectStore } = options;
  const secrets = makeSecrets();
  const databaseUrls = await serviceDatabases(postgres, prefix);
  const backends = start<ServicesCalls>('services', 'granary/services.js');
  const where = await backends.child.call('start', {
    databaseUrls,
    directory,
    internalSecret: secrets.internalSecret,
    ...(objectStore && { objectStore }),
  });
  const gateway = start<GatewayCalls>('gateway', 'granary/gateway.js');
  const { port } = await gateway.child.call('start', { ...where, ...secrets });
  return granarySide(port, [gateway, backends], secrets);
}

const makeSecrets = () => ({
  operatorKey: `op_${randomBytes(24).toString('hex')}`,
  internalSecret: `internal_${randomBytes(24).toString('hex')}`,
});

async function serviceDatabases(postgres: Tools['postgres'], prefix: string): Promise<Record<DatabaseService, string>> {
  const urls = await postgres.call(
    'makeDatabases',
    services.map((service) => `${prefix}_${service}`),
  );
  return recordOf(services, (service) => urls[`${prefix}_${service}`]!);
}

async function granarySide(
  port: number,
  children: Side['children'],
  { operatorKey }: { operatorKey: string },
): Promise<StartedGranary> {
  const url = `http://127.0.0.1:${port}`;
  const openApp = (name: string) => makeApp(url, name, operatorKey);
  const { requests, prepare, count, blobRequests } = await openApp(app);
  const operatorHeaders = { 'X-Operator-Key': operatorKey };
  return { port, url, children, requests, prepare, count, blobRequests, openApp, operatorHeaders };
}

async function makeApp(url: string, name: string, operatorKey: string): Promise<App> {
  const { app_key: key } = await fetchJson<{ app_key: string }>(`${url}/api/applications`, {
    body: { app_id: name, name: 'Bench' },
    headers: { 'X-Operator-Key': operatorKey },
    statuses: [201],
  });
  const headers = { 'X-App-Key': key };
  const requests = granaryRequests(name, key);
  const collections = `${url}/api/apps/${name}/collections`;

  const prepare = async (wantsComposite: boolean) => {
    const createIndex = (collection: string, definition: object, statuses: number[]) =>
      fetchJson<{ code?: string }>(`${url}/api/apps/${name}/indexes`, {
        body: { collection, ...definition },
        headers,
        statuses,
      });
    let hasComposite = wantsComposite;
    for (const collection of ['documents', 'writes']) {
      await fetchJson(collections, { body: { name: collection }, headers, statuses: [201] });
      const definition = { name: 'category and score', index_type: 'composite', fields: ['category', 'score'] };
      if (hasComposite)
        hasComposite = (await createIndex(collection, definition, [201, 501])).code !== 'NOT_IMPLEMENTED';
      const others = hasComposite
        ? { owner: 'string', views: 'number' }
        : { owner: 'string', category: 'string', score: 'number' };
      for (const [field, type] of Object.entries(others)) {
        await createIndex(collection, { name: field, index_type: type, field_name: field }, [201]);
      }
    }
    return hasComposite ? [] : ['single-field indexes replace the composite one'];
  };
  const count = async (collection: string) => {
    const stats = await fetchJson<{ document_count: number }>(`${collections}/${collection}/stats`, { headers });
    return stats.document_count;
  };
  const blobRequests = (bytes: number) => {
    const upload = { ...requests.blob, body: { bytes } };
    const download = async () => {
      const { blob_id: id } = await fetchJson<{ blob_id: string }>(`${url}${upload.path}`, {
        body: Buffer.alloc(bytes, 1),
        headers: upload.headers,
        statuses: upload.statuses,
      });
      return { method: 'GET', path: `${upload.path}/${id}`, headers: {}, statuses: [200] };
    };
    return { upload: () => Promise.resolve(upload), download };
  };
  return { headers, requests, prepare, count, blobRequests };
}
