import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { fetchJson } from './fetch-json.mjs';
import { startProcess } from './processes.mjs';
import { baselineRequests, granaryRequests } from './runs.mjs';

const app = 'bench';
const services = ['payments', 'data', 'blobs', 'finance', 'tasks'];

/** The sides: Granary in two topologies, and the two baselines. */
export const sideTitles = {
  embedded: 'Granary, all services in one process',
  split: 'Granary, gateway and services in two processes',
  usual: 'express, pg, jsonb, rows parsed, res.json',
  bare: 'node:http, pg, prepared statements, text passed through',
};

/** The Node flags of `npm start`; the baselines run with Node's defaults. */
const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const nodeFlags = manifest.scripts.start.split(' ').filter((word) => word.startsWith('--'));

const starts = { embedded: startEmbedded, split: startSplit, usual: startBaseline, bare: startBaseline };

/**
 * Starts one side, with its own databases on the shared Postgres. Returns `requests` by name of the run, `processes` by
 * name, `count(collection)`, and `prefix`, with which the names of its databases begin. `wantsComposite`: whether to
 * try a composite index. `settings`: of services, by their names, in one process. `started` is called with each process
 * at once, so that it can be stopped even if the start fails later. The same side may be started again `as` another
 * one, with the settings of another object store or another environment.
 */
export async function startSide(
  name,
  { as = name, postgres, directory, wantsComposite, started, objectStore, env, settings },
) {
  const own = path.join(directory, as);
  await mkdir(own);
  const prefix = `bench_${as}`;
  const start = (process, file) => {
    const child = startProcess(file, env, file.startsWith('granary/') ? nodeFlags : []);
    started(child);
    return { process, child };
  };
  const side = await starts[name]({ name, postgres, directory: own, prefix, start, objectStore, settings });
  const notes = side.prepare ? await side.prepare(wantsComposite) : [];
  const pids = Object.fromEntries(side.children.map(({ process, child }) => [process, child.pid]));
  // Numbers of new documents, after those of the load.
  return { name, prefix, notes, pids, nextNumber: 10_000_000, ...side };
}

async function startBaseline({ name, postgres, directory, prefix, start }) {
  const urls = await postgres.call('makeDatabases', [prefix]);
  const { process, child } = start(name, `baselines/${name}.mjs`);
  const { port } = await child.call('start', { databaseUrl: urls[prefix], directory });
  const url = `http://127.0.0.1:${port}`;
  const count = async (collection) => (await fetchJson(`${url}/${collection}/count`)).count;
  return { port, url, children: [{ process, child }], requests: baselineRequests, count };
}

async function startEmbedded({ postgres, directory, prefix, start, settings }) {
  const secrets = makeSecrets();
  const databaseUrls = await serviceDatabases(postgres, prefix);
  const embedded = start('granary', 'granary/embedded.mjs');
  const { port } = await embedded.child.call('start', { databaseUrls, directory, settings, ...secrets });
  return granarySide(port, [embedded], secrets);
}

async function startSplit({ postgres, directory, prefix, start, objectStore }) {
  const secrets = makeSecrets();
  const databaseUrls = await serviceDatabases(postgres, prefix);
  const backends = start('services', 'granary/services.mjs');
  const where = await backends.child.call('start', { databaseUrls, directory, objectStore, ...secrets });
  const gateway = start('gateway', 'granary/gateway.mjs');
  const { port } = await gateway.child.call('start', { ...where, ...secrets });
  return granarySide(port, [gateway, backends], secrets);
}

const makeSecrets = () => ({
  operatorKey: `op_${randomBytes(24).toString('hex')}`,
  internalSecret: `internal_${randomBytes(24).toString('hex')}`,
});

async function serviceDatabases(postgres, prefix) {
  const urls = await postgres.call(
    'makeDatabases',
    services.map((service) => `${prefix}_${service}`),
  );
  return Object.fromEntries(services.map((service) => [service, urls[`${prefix}_${service}`]]));
}

async function granarySide(port, children, { operatorKey }) {
  const url = `http://127.0.0.1:${port}`;
  const openApp = (app) => makeApp(url, app, operatorKey);
  const { requests, prepare, count, blobRequests } = await openApp(app);
  const operatorHeaders = { 'X-Operator-Key': operatorKey };
  return { port, url, children, requests, prepare, count, blobRequests, openApp, operatorHeaders };
}

/**
 * An app with its key: headers with it, the requests of its runs, its set-up of collections, and its count of
 * documents.
 */
async function makeApp(url, app, operatorKey) {
  const made = await fetchJson(`${url}/api/applications`, {
    body: { app_id: app, name: 'Bench' },
    headers: { 'X-Operator-Key': operatorKey },
    statuses: [201],
  });
  const headers = { 'X-App-Key': made.app_key };
  const requests = granaryRequests(app, made.app_key);
  const collections = `${url}/api/apps/${app}/collections`;

  const prepare = async (wantsComposite) => {
    const createIndex = (collection, definition, statuses) =>
      fetchJson(`${url}/api/apps/${app}/indexes`, {
        body: { collection, ...definition },
        headers,
        statuses,
      });
    let hasComposite = wantsComposite;
    for (const collection of ['documents', 'writes']) {
      await fetchJson(collections, { body: { name: collection }, headers, statuses: [201] });
      const composite = { name: 'category and score', index_type: 'composite', fields: ['category', 'score'] };
      const { code } = hasComposite ? await createIndex(collection, composite, [201, 501]) : {};
      hasComposite &&= code !== 'NOT_IMPLEMENTED';
      const others = hasComposite
        ? { owner: 'string', views: 'number' }
        : { owner: 'string', category: 'string', score: 'number' };
      for (const [field, type] of Object.entries(others)) {
        await createIndex(collection, { name: field, index_type: type, field_name: field }, [201]);
      }
    }
    return hasComposite ? [] : ['single-field indexes replace the composite one'];
  };
  const count = async (collection) => {
    const stats = await fetchJson(`${collections}/${collection}/stats`, { headers });
    return stats.document_count;
  };
  /** Uploads of this size, and downloads of a blob that is uploaded now. */
  const blobRequests = (bytes) => {
    const upload = { ...requests.blob, body: { bytes } };
    const download = async () => {
      const { blob_id: id } = await fetchJson(`${url}${upload.path}`, {
        body: Buffer.alloc(bytes, 1),
        headers: upload.headers,
        statuses: upload.statuses,
      });
      return { method: 'GET', path: `${upload.path}/${id}`, headers: {}, statuses: [200] };
    };
    return { upload: () => upload, download };
  };
  return { headers, requests, prepare, count, blobRequests };
}
