import { documentText, type DocumentsBody } from './documents';
import type { LoadRequest } from './load';
import { namesOf } from './records';

const mebibyte = 1024 * 1024;

export type RunName = 'point' | 'page' | 'insert' | 'bulk' | 'blob';

export interface Run {
  title: string;
  connections: number;
  requestsMax: number;
  /** The name of what is counted, for rates. */
  unit: string;
  /** The number of these units in a request. */
  perRequest: number;
  target: string;
  /** Documents that a request writes. */
  writes?: number;
  /** Files that a request stores. */
  files?: number;
}

export const bulkSize = 1_000;

/**
 * The measured runs. Runs with large bodies use fewer connections, so that each sends several requests in a run of a
 * second; runs that fill the disk have a limit of requests.
 */
export const runs: Record<RunName, Run> = {
  point: {
    title: 'point read: equality on an indexed field, 5 or 6 documents',
    connections: 32,
    requestsMax: Infinity,
    unit: 'requests',
    perRequest: 1,
    target: '3.3 x usual',
  },
  page: {
    title: 'page: 100 documents of a category by descending score',
    connections: 32,
    requestsMax: Infinity,
    unit: 'requests',
    perRequest: 1,
    target: '3.5 x usual',
  },
  insert: {
    title: 'insert: one document in a request, durable when it is answered',
    connections: 32,
    requestsMax: Infinity,
    unit: 'documents',
    perRequest: 1,
    target: '2.8 x usual, by CPU 3.0 embedded and 2.2 split',
    writes: 1,
  },
  bulk: {
    title: 'bulk: 1,000 documents in a request, durable when it is answered',
    connections: 8,
    requestsMax: 2_000,
    unit: 'documents',
    perRequest: bulkSize,
    target: '1.4 x usual, by CPU 1.2 embedded and 1.15 split',
    writes: bulkSize,
  },
  blob: {
    title: 'blob: upload of 1 MiB, durable when it is answered',
    connections: 8,
    requestsMax: 1_000,
    unit: 'MiB',
    perRequest: 1,
    target: 'gateway at most 2,000 µs',
    files: 1,
  },
};

export const runNames = namesOf(runs);

/** The requests of a run for the baselines, as input of the load generator. */
export const baselineRequests: Record<RunName | 'load', LoadRequest> = {
  point: get('/documents?owner={owner}'),
  page: get('/documents?category={category}&limit=100'),
  insert: write('/writes', { prefix: '', suffix: '', documents: 1 }),
  bulk: write('/writes/bulk', { prefix: '[', suffix: ']', documents: bulkSize }),
  load: write('/documents/bulk', { prefix: '[', suffix: ']', documents: bulkSize }),
  blob: upload('/files', {}),
};

/**
 * The requests of a run for Granary: public reads of the data of a collection, writes by /store with the key of the
 * app.
 */
export function granaryRequests(app: string, key: string) {
  const data = `/api/apps/${app}/collections/documents/data`;
  const keyed = { 'X-App-Key': key };
  const store = (collection: string, documents: number) =>
    write('/store', { prefix: `{"root":"${app}::${collection}","data":[`, suffix: ']}', documents }, keyed);
  return {
    point: get(`${data}?owner={owner}&count=none`),
    page: get(`${data}?category={category}&sort=-score&limit=100&count=none`),
    unchangedPoint: {
      ...get(`${data}?owner={owner}&count=none`),
      headers: { 'If-None-Match': '*' },
      statuses: [304],
    },
    // These cost most among the reads without a key: a scan, a count of all documents, and the last of many documents.
    scan: get(`${data}?owner.$includesCaseInsensitive=none&category.$endsWith=none&sort=-score`),
    count: get(`${data}?owner.$ne=none&limit=1`),
    deepPage: get(`${data}?sort=-score&offset=19000&limit=1000&count=none`),
    largePage: get(`${data}?sort=-score&limit=1000&count=none`),
    largestPage: get(`${data}?sort=-score&limit=10000&count=none`),
    insert: store('writes', 1),
    bulk: store('writes', bulkSize),
    load: store('documents', bulkSize),
    append: store('documents', 1),
    blob: upload(`/api/apps/${app}/blobs/files`, keyed),
    ...singleDocumentRequests(app, keyed),
  } satisfies Record<string, LoadRequest>;
}

export type GranaryRequests = ReturnType<typeof granaryRequests>;
export type GranaryRequestName = keyof GranaryRequests;

/** The number of documents of `documents` that are read and changed by their ids; the collection must have as many. */
const addressedCount = 100_000;

function singleDocumentRequests(app: string, headers: Record<string, string>) {
  const json = { ...headers, 'Content-Type': 'application/json' };
  const path = (collection: string) => `/api/apps/${app}/collections/${collection}/documents/{id}`;
  const existing = { path: path('documents'), ids: addressedCount };
  const update = { before: '{"operation":"update","collection":"documents","data":', after: '}' };
  const operations = { prefix: '{"operations":[', suffix: ']}', documents: bulkSize, each: update };
  const put = { prefix: '', suffix: '', documents: 1 };
  return {
    put: { method: 'PUT', path: path('writes'), headers: json, body: put, statuses: [201] },
    replace: { method: 'PUT', ...existing, headers: json, body: { text: documentText }, statuses: [200] },
    patch: { method: 'PATCH', ...existing, headers: json, body: { text: '{"views":7}' }, statuses: [200] },
    // Each document is changed once, so that all but one in a hundred leave their category.
    recategorize: {
      method: 'PATCH',
      ...existing,
      headers: json,
      body: { text: '{"category":"c00"}' },
      statuses: [200],
    },
    get: { method: 'GET', ...existing, headers, statuses: [200] },
    notModified: { method: 'GET', ...existing, headers: { ...headers, 'If-None-Match': '*' }, statuses: [304] },
    batch: { method: 'POST', path: `/api/apps/${app}/batch`, headers: json, body: operations, statuses: [200] },
  } satisfies Record<string, LoadRequest>;
}

function get(path: string): LoadRequest {
  return { method: 'GET', path, headers: {}, statuses: [200] };
}

function write(path: string, body: DocumentsBody, headers: Record<string, string> = {}): LoadRequest {
  return { method: 'POST', path, headers: { 'Content-Type': 'application/json', ...headers }, body, statuses: [202] };
}

function upload(path: string, headers: Record<string, string>): LoadRequest {
  const type = { 'Content-Type': 'application/octet-stream' };
  return { method: 'POST', path, headers: { ...type, ...headers }, body: { bytes: mebibyte }, statuses: [202] };
}
