import { send, type Answer, type TestApp } from './granary';

/** What the writers of a run share with its readers. */
interface Counters {
  /** By writer: the value that it has begun to write, and the last one that was acknowledged. */
  begun: number[];
  acknowledged: number[];
}

interface Page {
  records: Array<{ id: string; value: number; kind: string; entry?: Array<{ value: number }> }>;
  total: number | null;
}

export interface RunOptions {
  app: TestApp;
  /** Of one or more gateways, which are used in turns. */
  urls: readonly string[];
  reads: number;
  writers: number;
  readers: number;
}

const collection = 'entries';
/** A reader reads a page so many times before the next one. */
const readsInARow = 5;

/** Lets writers wait for readers. */
class Progress {
  private waiters: Array<{ count: number; wake: () => void }> = [];
  private current = 0;

  /** Resolves at once when the readers have come so far already: after their last read nothing would wake a waiter. */
  async reaches(count: number): Promise<void> {
    if (count <= this.current) return;
    await new Promise<void>((wake) => this.waiters.push({ count, wake }));
  }

  reached(count: number): void {
    this.current = count;
    const woken = this.waiters.filter((waiter) => waiter.count <= count);
    if (woken.length === 0) return;
    this.waiters = this.waiters.filter((waiter) => waiter.count > count);
    for (const { wake } of woken) wake();
  }
}

/** Makes the collection of a run, with a document for each writer, and the predefined query that joins it. */
export async function prepareRun({ app, writers }: Pick<RunOptions, 'app' | 'writers'>): Promise<void> {
  const index = { name: 'by_kind', collection, field_name: 'kind', index_type: 'string' };
  await app.call('POST', `/api/apps/${app.appId}/indexes`, index);
  await app.store(
    collection,
    Array.from({ length: writers }, (_, writer) => entry(writer, 0)),
  );
  await app.store(
    'writers',
    Array.from({ length: writers }, (_, writer) => ({ id: `${writer}` })),
  );
  const join = { entry: { resolve: { find: { id: '$data.id' } }, model: collection } };
  const definition = { name: 'joined', source_collection: 'writers', base_query: { find: join } };
  await app.call('POST', `/apps/${app.appId}/queries`, definition);
}

const entry = (writer: number, value: number) => ({ id: `${writer}`, kind: `k${writer % 2}`, value });
/** Each fifth version of a document is a soft delete. */
const isDeleted = (value: number): boolean => value % 5 === 4;

/**
 * Reads public pages over and over, with the ETag of the page that a reader has, while writers change what is on them.
 * Throws where a page that is shown, or stays after a 304, lacks a write that was acknowledged before the request.
 * Returns how many answers were 304.
 */
export async function readUnderWrites({ app, urls, reads, writers, readers }: RunOptions): Promise<number> {
  const counters: Counters = { begun: Array<number>(writers).fill(0), acknowledged: Array<number>(writers).fill(0) };
  const progress = new Progress();
  let done = 0;
  let notModified = 0;
  const urlOf = (number: number) => urls[number % urls.length]!;

  const write = async (writer: number) => {
    for (let value = 1; done < reads; value += 1) {
      // As many reads as it takes that some pages have not changed in between.
      const next = done + 20 + ((writer * 37 + value * 61) % 260);
      counters.begun[writer] = value;
      const answer = isDeleted(value)
        ? await at(app, urlOf(value), 'DELETE', `documents/${writer}`)
        : await at(app, urlOf(value), 'PUT', `documents/${writer}`, entry(writer, value));
      if (answer.status > 201) throw new Error(`not written: ${answer.status} ${answer.text}`);
      counters.acknowledged[writer] = value;
      await progress.reaches(Math.min(next, reads));
    }
  };

  const paths = pathsOf(app.appId);
  const read = async (reader: number) => {
    const kept = new Map<string, { etag: string; page: Page }>();
    for (let round = reader; done < reads; round += 1) {
      const path = paths[Math.floor(round / readsInARow) % paths.length]!;
      const before = [...counters.acknowledged];
      const known = kept.get(path);
      const headers = known && { 'if-none-match': known.etag };
      const answer = await send<Page>(urlOf(round), 'GET', path, headers ? { headers } : {});
      progress.reached((done += 1));
      if (answer.status === 304) notModified += 1;
      else if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${answer.text}`);
      const etag = answer.headers.get('etag');
      if (!etag) throw new Error(`${path} has no ETag`);
      const page = answer.status === 304 ? known!.page : answer.body;
      kept.set(path, { etag, page });
      assertShown(path, page, before, counters.begun, answer);
    }
  };

  const all = <T>(count: number, run: (number: number) => Promise<T>) =>
    Array.from({ length: count }, (_, n) => run(n));
  await Promise.all([...all(writers, write), ...all(readers, read)]);
  return notModified;
}

const at = (app: TestApp, url: string, method: string, path: string, body?: object): Promise<Answer> =>
  send(url, method, `/api/apps/${app.appId}/collections/${collection}/${path}`, { key: app.key, body });

const pathsOf = (appId: string): string[] => [
  `/api/apps/${appId}/collections/${collection}/data`,
  `/api/apps/${appId}/collections/${collection}/data?kind=k0`,
  `/api/apps/${appId}/collections/${collection}/data?kind=k1&count=none&limit=50`,
  `/api/apps/${appId}/collections/${collection}/data?id=3`,
  `/api/apps/${appId}/collections/${collection}/data?kind.$in=k0,k1&sort=-kind&limit=3`,
  `/api/queries/${appId}/joined/data`,
];

/** Each document of the page is in a version between what was acknowledged before the request and what was begun. */
function assertShown(
  path: string,
  { records, total }: Page,
  before: readonly number[],
  begun: readonly number[],
  { status }: { status: number },
): void {
  const isJoined = path.includes('/queries/');
  const shown = new Map(records.map(({ id, value, entry: joined }) => [id, isJoined ? joined?.[0]?.value : value]));
  before.forEach((least, writer) => {
    if (!isOnPage(path, writer)) return;
    const value = shown.get(`${writer}`);
    const possible = Array.from({ length: begun[writer]! - least + 1 }, (_, n) => least + n);
    const isPossible = value === undefined ? possible.some(isDeleted) : possible.includes(value);
    if (isPossible) return;
    throw new Error(`${path} (${status}): ${writer} is ${value}, not of ${possible.join(' ')}, total ${total}`);
  });
  const isWhole = total !== null && !path.includes('limit=');
  if (isWhole && total !== records.length) throw new Error(`${path}: ${records.length} records, total ${total}`);
}

function isOnPage(path: string, writer: number): boolean {
  if (path.includes('limit=3')) return false;
  const [, kind] = /kind=k(\d)/.exec(path) ?? [];
  if (path.includes('id=3')) return writer === 3;
  return kind === undefined || writer % 2 === Number(kind);
}
