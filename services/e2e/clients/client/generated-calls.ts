import { deepStrictEqual } from 'node:assert';
import { readFileSync } from 'node:fs';
import { granary, GranaryError, type Filter } from '@granary/client';
import type { Target } from './checks.js';
import { seededRandom } from './random.js';

/** The same calls, by the client on one app and by plain HTTP on another one, have the same results. */
interface Row {
  text?: string;
  n?: number;
  list?: string[];
  deep?: { flag: boolean };
}

interface Task {
  targets: [Target, Target];
  seed: number;
  calls: number;
}

/** What came of a call, in the terms of plain HTTP. */
type Outcome = { status: number; body: unknown; version?: number };

const { targets, seed, calls } = JSON.parse(readFileSync(0, 'utf8')) as Task;
const [ours, plain] = targets;
const random = seededRandom(seed);
const pick = <T>(values: readonly T[]): T => values[random(values.length)]!;
const rows = granary<{ collections: { rows: { document: Row } }; views: object; queries: object }>({
  ...ours,
  retries: 0,
}).collection('rows');

const ids = ['a', 'b', 'c/d', 'é 😀', 'e%2F', 'f?g=h#i', '0', 'long'.repeat(40)];
const texts = ['', 'x', '"', 'ä', '\u2028', ' 1 ', 'null', '<b>'];

function newRow(): Row {
  return {
    ...(random(4) > 0 && { text: pick(texts) }),
    ...(random(4) > 0 && { n: pick([0, -1, 1.5, 1e21, 7, 2 ** 53]) }),
    ...(random(3) === 0 && { list: [pick(texts), pick(texts)] }),
    ...(random(3) === 0 && { deep: { flag: random(2) === 0 } }),
  };
}

const newFilter = (): Filter<Row> =>
  pick<() => Filter<Row>>([
    () => ({}),
    () => ({ n: { gte: pick([0, 1, 7]) } }),
    () => ({ text: pick(texts) }),
    () => ({ text: { in: [pick(texts), pick(texts)] }, n: { isNull: random(2) === 0 } }),
    () => ({ or: [{ id: pick(ids) }, { 'deep.flag': true }] }),
    () => ({ list: { contains: pick(texts) } }),
    () => ({ not: [{ text: { startsWith: 'x' } }] }),
    () => ({ n: 'not a number' }) as unknown as Filter<Row>,
    () => ({ text: { unknown: 1 } }) as unknown as Filter<Row>,
  ])();

/** One call in both ways; `http` is its method, path, body and headers. */
interface Pair {
  client: () => Promise<Omit<Outcome, 'status'>>;
  http: [method: string, path: string, body?: unknown, headers?: Record<string, string>];
  /** Of the body of the answer. */
  part: (body: never) => unknown;
}

const path = (id: string) => `/api/apps/${plain.app}/collections/rows/documents/${encodeURIComponent(id)}`;
const whole = (body: unknown) => body;
const list = (query: object) => ['POST', '/list', { root: `${plain.app}::rows`, ...query }] as Pair['http'];

/** Of documents that are not deleted. */
function present(find: object): object {
  const deleted = { deleted: { isNot: true } };
  return Object.keys(find).length === 0 ? deleted : { and: [find, deleted] };
}

/** The condition of a write by a version, right or wrong, or none. */
function newCondition(): { options: { ifVersion?: number }; headers: Record<string, string> } {
  const version = pick([undefined, undefined, 1, 2, 3]);
  if (version === undefined) return { options: {}, headers: {} };
  return { options: { ifVersion: version }, headers: { 'If-Match': `"${version}"` } };
}

const kinds: Array<() => Pair> = [
  () => {
    const document = { id: pick(ids), ...newRow() };
    const { options, headers } = newCondition();
    const client = async () => {
      const { document: body, version } = await rows.put(document, options);
      return { body, version };
    };
    return { client, http: ['PUT', path(document.id), document, headers], part: whole };
  },
  () => {
    const id = pick(ids);
    const changes = pick([{ n: 3 }, { text: null }, { deep: { flag: null } }, { n: null, list: [] }]);
    const { options, headers } = newCondition();
    const client = async () => {
      const { document: body, version } = await rows.patch(id, changes, options);
      return { body, version };
    };
    return { client, http: ['PATCH', path(id), changes, headers], part: whole };
  },
  () => {
    const id = pick(ids);
    const { options, headers } = newCondition();
    return {
      client: async () => ({ body: await rows.delete(id, options) }),
      http: ['DELETE', path(id), undefined, headers],
      part: whole,
    };
  },
  () => {
    const id = pick(ids);
    const client = async () => {
      const versioned = await rows.getVersioned(id);
      if (!versioned) throw new GranaryError('', { code: 'DOCUMENT_NOT_FOUND', status: 404 });
      return { body: versioned.document, version: versioned.version };
    };
    return { client, http: ['GET', path(id)], part: whole };
  },
  () => {
    const data = Array.from({ length: 1 + random(5) }, () => ({ id: pick(ids), ...newRow() }));
    return {
      client: async () => {
        const { ids: stored, height } = await rows.store(data);
        return { body: stored.map((id) => [id, height]) };
      },
      http: ['POST', '/store', { root: `${plain.app}::rows`, data }],
      part: ({ results }: { results: Array<{ id: string; celestia_height: number }> }) =>
        results.map(({ id, celestia_height }) => [id, celestia_height]),
    };
  },
  () => {
    const find = newFilter();
    const sort = pick([['n'], ['-n', 'text'], ['id']] as const);
    const limit = 1 + random(4);
    return {
      client: async () => ({
        body: await rows
          .find(find)
          .sort(...sort)
          .limit(limit)
          .toArray(),
      }),
      http: list({ find: present(find), sort, limit, count: 'none' }),
      part: ({ records }: { records: unknown[] }) => records,
    };
  },
  () => {
    const find = newFilter();
    return {
      client: async () => ({ body: await rows.find(find).count() }),
      http: list({ find: present(find), limit: 1 }),
      part: ({ total }: { total: number }) => total,
    };
  },
  () => {
    const find = newFilter();
    return {
      client: async () => ({ body: await rows.find(find, { history: true }).select('id', 'n').toArray() }),
      http: list({ find, select: ['id', 'n'], include_history: true, limit: 10_000 }),
      part: ({ records }: { records: unknown[] }) => records,
    };
  },
];

async function byClient({ client }: Pair): Promise<Outcome> {
  try {
    return { status: 200, ...(await client()) };
  } catch (error) {
    if (!(error instanceof GranaryError)) throw error;
    return { status: error.status, body: error.code };
  }
}

async function byHttp({ http: [method, url, body, headers], part }: Pair): Promise<Outcome> {
  const answer = await fetch(plain.url + url, {
    method,
    headers: { 'X-App-Key': plain.key, 'Content-Type': 'application/json', ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const parsed = (await answer.json()) as { code?: string };
  if (!answer.ok) return { status: answer.status, body: parsed.code };
  const version = answer.headers.get('etag');
  return {
    status: 200,
    body: part(parsed as never),
    ...(version !== null && { version: Number(version.slice(1, -1)) }),
  };
}

const statuses: Record<number, number> = {};
for (let call = 0; call < calls; call += 1) {
  const pair = pick(kinds)();
  const [one, other] = await Promise.all([byClient(pair), byHttp(pair)]);
  if (one.version === undefined) delete other.version;
  deepStrictEqual(one, other, `call ${call}: ${JSON.stringify(pair.http)}`);
  statuses[one.status] = (statuses[one.status] ?? 0) + 1;
}
console.log(JSON.stringify({ statuses }));
