import { exactNumber, granary, GranaryError, type App, type ChangeEvent, type ErrorCode } from '@granary/client';

/** An app for the checks: it is empty, and the key may do everything. */
export interface Target {
  url: string;
  app: string;
  key: string;
}

interface Book {
  title: string;
  year: number;
  price?: number;
  tags?: string[];
  author?: { name: string; born?: number };
}

interface Library {
  collections: { books: { document: Book } };
  views: { per_year: { row: { year: number; books: number }; variables: { from: number } } };
  queries: { books_since: { row: Book & { id: string }; parameters: { year: number } } };
}

/** Runs in Node and in browsers alike, so it has no library for assertions. */
function equal(actual: unknown, expected: unknown): void {
  const [one, other] = [text(actual), text(expected)];
  if (one !== other) throw new Error(`is ${one}\nand not ${other}`);
}

const text = (value: unknown): string =>
  JSON.stringify(value, (_, member: unknown) => {
    if (typeof member !== 'object' || member === null || Array.isArray(member)) return member;
    return Object.fromEntries(Object.entries(member).sort(([one], [other]) => (one < other ? -1 : 1)));
  }) ?? 'undefined';

async function refused(code: ErrorCode, work: () => Promise<unknown>): Promise<GranaryError> {
  const error: unknown = await work().then(
    () => new Error('nothing was refused'),
    (reason: unknown) => reason,
  );
  if (error instanceof GranaryError && error.code === code) return error;
  throw new Error(`not ${code}, but ${String(error)}`, { cause: error });
}

const open = (target: Target): App<Library> => granary<Library>(target);

const shelf: Array<Book & { id: string }> = [
  { id: 'b1', title: 'Emma', year: 1815, price: 9.5, tags: ['novel'], author: { name: 'Jane Austen', born: 1775 } },
  { id: 'b2', title: 'Ulysses', year: 1922, price: 20, author: { name: 'James Joyce' } },
  { id: 'b3', title: 'Nostromo', year: 1904 },
];

async function withShelf(target: Target): Promise<App<Library>> {
  const app = open(target);
  await app.collection('books').store(shelf);
  return app;
}

/** The first so many events of a feed. */
async function take<D>(feed: AsyncIterable<ChangeEvent<D>>, count: number): Promise<Array<ChangeEvent<D>>> {
  const events: Array<ChangeEvent<D>> = [];
  for await (const event of feed) if (events.push(event) === count) break;
  return events;
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 20));
}

export const checks: Record<string, (target: Target) => Promise<void>> = {
  'documents are written, read, changed and deleted by their versions': async (target) => {
    const books = open(target).collection('books');
    equal(await books.get('b1').catch((error: GranaryError) => error.code), 'COLLECTION_NOT_FOUND');
    equal((await books.put(shelf[0]!)).version, 1);
    equal(await books.get('none'), undefined);
    equal(await books.get('b1'), shelf[0]);
    equal(await books.patch('b1', { price: 8, tags: null }, { ifVersion: 1 }), {
      document: { id: 'b1', title: 'Emma', year: 1815, price: 8, author: { name: 'Jane Austen', born: 1775 } },
      version: 2,
    });
    const stale = await refused('PRECONDITION_FAILED', () => books.put(shelf[0]!, { ifVersion: 1 }));
    equal(stale.status, 412);
    await refused('PRECONDITION_FAILED', () => books.put(shelf[0]!, { ifAbsent: true }));
    equal((await books.getVersioned('b1'))?.version, 2);
    equal((await books.delete('b1', { ifVersion: 2 })).version, 3);
    equal((await books.erase('b1')).versions, 3);
    const odd = { id: 'a/b?c#d %é', title: 'Odd', year: 1 };
    equal((await books.put(odd, { ifAbsent: true })).version, 1);
    equal(await books.get(odd.id), odd);
    // In a URL they are steps, and lead from a document to its collection.
    for (const id of ['.', '..', '']) await refused('VALIDATION_FAILED', async () => books.delete(id));
  },

  'documents are stored together and found by filters': async (target) => {
    const app = await withShelf(target);
    const books = app.collection('books');
    const { ids, height } = await books.store([{ title: 'Dubliners', year: 1914 }]);
    equal([ids.length, height], [1, 2]);
    const titles = async (records: AsyncIterable<{ title: string }>) => {
      const all: string[] = [];
      for await (const { title } of records) all.push(title);
      return all;
    };
    equal(await titles(books.find().sort('-year')), ['Ulysses', 'Dubliners', 'Nostromo', 'Emma']);
    const old = books.find({ year: { lt: 1910 }, 'author.name': { startsWith: 'J' } });
    equal(await old.toArray(), [shelf[0]]);
    equal(await books.find({ or: [{ title: 'Emma' }, { year: { between: [1920, 1930] } }] }).count(), 2);
    equal(await books.find({ title: 'Emma' }).select('title', 'year').toArray(), [{ title: 'Emma', year: 1815 }]);
    equal(await titles(books.find().sort('title').limit(3)), ['Dubliners', 'Emma', 'Nostromo']);
    equal((await books.find().sort('year').first())?.id, 'b1');
    const sizes: number[] = [];
    for await (const { records } of books.find().pages(3)) sizes.push(records.length);
    equal(sizes, [3, 1]);
    const page = await books.find({ titel: 'Emma' } as Record<`${string}.${string}`, unknown>).page({ count: true });
    equal([page.total, page.hints?.[0]?.field], [0, 'titel']);
    await books.put({ ...shelf[2]!, year: 1905 });
    equal(await books.find({ id: 'b3' }, { history: true }).count(), 2);
    await books.delete('b3');
    equal(await books.find({ id: 'b3' }).toArray(), []);
    equal((await books.find({ id: 'b3' }, { deleted: 'include' }).first())?.title, 'Nostromo');
    equal(await books.find().count(), 3);
    // JSON would leave it out, and all documents would be found.
    const unknown = { title: undefined } as object as { title: string };
    await refused('VALIDATION_FAILED', () => books.find(unknown).toArray());
  },

  'many documents are read page by page': async (target) => {
    const books = open(target).collection('books');
    const many = Array.from({ length: 2_600 }, (_, number) => ({ title: `t${number}`, year: number % 7 }));
    await books.store(many);
    const years = (await books.find().sort('year').toArray()).map(({ year }) => year);
    equal([years.length, years.every((year, place) => place === 0 || years[place - 1]! <= year)], [2_600, true]);
    equal((await books.find().limit(1_201).toArray()).length, 1_201);
  },

  'everybody reads what is public': async (target) => {
    const app = await withShelf(target);
    const everybody = granary<Library>({ url: target.url, app: target.app }).collection('books');
    await app.collection('books').createIndex({ name: 'year', field_name: 'year', index_type: 'number' });
    await app.collection('books').createIndex({ name: 'title', field_name: 'title', index_type: 'string' });
    equal(
      (
        await everybody
          .find({ year: { gt: 1_900 } })
          .sort('-year')
          .toArray()
      ).map(({ id }) => id),
      ['b2', 'b3'],
    );
    equal(await everybody.find({ title: 'Emma', year: 1815 }).count(), 1);
    equal(
      (
        await everybody
          .find({ year: { between: [1_904, 1_922] } })
          .sort('year')
          .toArray()
      ).length,
      2,
    );
    equal((await everybody.find({ title: { between: { from: 'E', to: 'F, or so' } } }).first())?.id, 'b1');
    equal(await everybody.find({ and: [{ year: null }] }).count(), 0);
    equal(
      (
        await everybody
          .find({ title: { in: ['Emma', 'Ulysses'] } })
          .select('title')
          .toArray()
      ).length,
      2,
    );
    await refused('NOT_SUPPORTED', () => everybody.find({ or: [{ year: 1815 }] }).toArray());
    await refused('FIELD_NOT_INDEXED', () => everybody.find({ price: 20 }).toArray());
    await refused('UNAUTHENTICATED', () => everybody.put(shelf[0]!));
    await app.collection('books').change({ access_policy: { read: 'private' } });
    await refused('UNAUTHENTICATED', () => everybody.find().toArray());
  },

  'views and predefined queries have rows': async (target) => {
    const app = await withShelf(target);
    const view = app.view('per_year');
    const { ticket_id } = await view.create({
      source_collections: ['books'],
      query: { group_by: 'year', aggregate: { books: { $count: '*' } } },
      variables: { from: 'year.$gte' },
    });
    equal((await app.finished(ticket_id)).status, 'Completed');
    equal(await view.rows({ from: 1900 }).sort('year').toArray(), [
      { year: 1904, books: 1 },
      { year: 1922, books: 1 },
    ]);
    equal(await view.rows({}, { find: { year: 1815 } }).count(), 1);
    const query = app.query('books_since');
    await query.create({
      source_collection: 'books',
      base_query: { sort: ['year'], limit: 2 },
      parameters: [{ name: 'year', field_path: 'year.$gte' }],
    });
    const titles = (await query.rows({ year: 1800 }).toArray()).map(({ title }) => title);
    // The limit of a query is the size of its pages.
    equal(titles, ['Emma', 'Nostromo', 'Ulysses']);
    equal((await query.rows({ year: 1800 }).page()).records.length, 2);
    equal((await query.rows({ year: 1904 }).first())?.title, 'Nostromo');
    equal((await query.rows({ year: 1904 }).limit(1).toArray()).length, 1);
    await query.drop();
    await view.drop();
    equal((await refused('VIEW_NOT_FOUND', () => view.rows().toArray())).status, 404);
  },

  'a map of a view stays right': async (target) => {
    const app = await withShelf(target);
    const view = app.view('per_year');
    const { ticket_id } = await view.create({
      source_collections: ['books'],
      query: { group_by: 'year', aggregate: { books: { $count: '*' } } },
      refresh_mode: 'live',
      changes: true,
    });
    await app.finished(ticket_id);
    const live = view.follow();
    await live.ready;
    equal(live.size, 3);
    await app.collection('books').put({ id: 'b4', title: 'Lord Jim', year: 1904 });
    await until(() => [...live.values()].some(({ books }) => books === 2));
    await app.collection('books').delete('b1');
    await until(() => live.size === 2);
    live.close();
    await live.ended;
    equal(live.status, 'closed');
  },

  'a batch does each operation by itself, or all of them': async (target) => {
    const app = await withShelf(target);
    const results = await app.batch([
      { operation: 'create', collection: 'books', data: { id: 'b4', title: 'Persuasion', year: 1817 } },
      { operation: 'create', collection: 'books', data: shelf[0]! },
    ]);
    equal(
      results.map(({ success, code }) => [success, code]),
      [
        [true, undefined],
        [false, 'ALREADY_EXISTS'],
      ],
    );
    await refused('PRECONDITION_FAILED', () =>
      app.batch(
        [
          { operation: 'delete', collection: 'books', data: { id: 'b4' } },
          { operation: 'update', collection: 'books', data: { id: 'b1' }, conditions: { year: 1 } },
        ],
        { atomic: true },
      ),
    );
    equal((await app.collection('books').get('b4'))?.title, 'Persuasion');
  },

  'files are uploaded with their progress, and read in parts': async (target) => {
    const app = open(target);
    const files = app.blobs('files');
    const bytes = new Uint8Array(700_000).map((_, place) => place % 251);
    const told: number[] = [];
    const { blob_id } = await files.upload(new Blob([bytes], { type: 'image/png' }), {
      metadata: { name: 'Bücher "1" 😀' },
      onProgress: (sent) => told.push(sent),
    });
    equal([told.length > 0, told.at(-1)], [true, bytes.length]);
    const described = await app.request<{ records: object[] }>('POST', '/list', {
      json: { root: `${target.app}::files`, select: ['name', 'content_type', 'size_bytes'] },
    });
    equal(described.records, [{ name: 'Bücher "1" 😀', content_type: 'image/png', size_bytes: bytes.length }]);
    equal(new Uint8Array(await (await files.download(blob_id)).arrayBuffer()), bytes);
    const part = await files.download(blob_id, { start: 100, end: 110 });
    equal([...new Uint8Array(await part.arrayBuffer())], [...bytes.subarray(100, 110)]);
    const empty = await files.upload('', { onProgress: (sent) => told.push(sent) });
    equal((await (await files.download(empty.blob_id)).text()).length, 0);
    await files.delete(blob_id);
    await refused('BLOB_NOT_FOUND', () => files.download(blob_id));
  },

  'a feed tells each change once, from where its reader was': async (target) => {
    const app = await withShelf(target);
    const books = app.collection('books');
    const first = books.changes({ since: 0 });
    const [emma, ulysses] = await take(first, 2);
    equal([emma!.event, (emma as { id: string }).id, (ulysses as { id: string }).id], ['put', 'b1', 'b2']);
    // The second was not handled when the loop was left.
    equal(first.cursor, (emma as { cursor: string }).cursor);
    await books.delete('b1');
    await books.patch('b2', { year: 2000 });
    const rest = await take(books.changes({ since: first.cursor, find: { year: { lt: 1_950 } } }), 4);
    equal(
      rest.map((change) => [change.event, (change as { id: string }).id, (change as { reason?: string }).reason]),
      [
        ['put', 'b2', undefined],
        ['put', 'b3', undefined],
        ['remove', 'b1', 'deleted'],
        ['remove', 'b2', 'filtered'],
      ],
    );
    const subscriptions = [
      { as: 'old', collection: 'books', find: { year: { lt: 1_900 } } },
      { as: 'all', collection: 'books' },
    ];
    const [both] = await take(app.changes({ since: 0, subscriptions, select: ['title'] }), 1);
    equal(
      [(both as { as: string[] }).as.sort(), (both as { document: object }).document],
      [['all', 'old'], { title: 'Emma' }],
    );
    const { token } = await app.createFeedToken({
      subscriptions: [{ as: 'new', collection: 'books' }],
      ttl_seconds: 60,
    });
    const stranger = granary<Library>({ url: target.url, app: target.app });
    const feed = stranger.changes<Book>({ token });
    const change = take(feed, 1);
    await until(() => feed.status === 'open');
    await books.put({ id: 'b9', title: 'New', year: 2026 });
    equal(((await change)[0] as { id: string }).id, 'b9');
    await refused('CURSOR_AHEAD', () => take(books.changes({ since: 1_000_000 }), 1));
    const stopped = new AbortController();
    const waiting = take(books.changes({ signal: stopped.signal }), 1);
    stopped.abort(new Error('enough'));
    equal(await waiting.catch((error: Error) => error.message), 'enough');
  },

  'a map of a collection stays right': async (target) => {
    const app = await withShelf(target);
    const books = app.collection('books');
    const live = books.follow({ find: { year: { gte: 1_900 } }, select: ['title'] });
    await live.ready;
    equal(
      [...live.entries()],
      [
        ['b2', { title: 'Ulysses' }],
        ['b3', { title: 'Nostromo' }],
      ],
    );
    let told = 0;
    const unsubscribe = live.onChange(() => (told += 1));
    await until(() => live.status === 'live');
    await books.patch('b3', { year: 1 });
    await books.delete('b2');
    await books.store([
      { id: 'b7', title: 'One', year: 1_950 },
      { id: 'b8', title: 'Two', year: 1_951 },
    ]);
    await until(() => live.height === 4);
    equal([[...live.keys()], live.get('b7'), live.size, told], [['b7', 'b8'], { title: 'One' }, 2, 3]);
    unsubscribe();
    await books.drop({ force: true });
    await refused('COLLECTION_NOT_FOUND', () => live.ended);
    equal([live.status, live.size], ['closed', 0]);
  },

  'a collection is exported, and imported as it was': async (target) => {
    const app = await withShelf(target);
    const books = app.collection('books');
    await books.patch('b2', { title: 'Ulysses!' });
    const all = books.export({ height: 1 });
    const documents: object[] = [];
    for await (const document of all) documents.push(document);
    equal([documents, all.height], [shelf, 1]);
    const some: object[] = [];
    for await (const document of books.export({ find: { year: 1904 }, select: ['title'] })) some.push(document);
    equal(some, [{ title: 'Nostromo' }]);
    const table = await books.exportFile({ format: 'csv', columns: ['id', 'year'] });
    equal([table.height, table.filename], [2, `${target.app}-books-2.csv`]);
    equal(await new Response(table.stream).text(), 'id,year\r\nb1,1815\r\nb2,1922\r\nb3,1904\r\n');
    const copies = app.collection('copies' as 'books');
    const offsets: number[] = [];
    const report = await copies.import(books.export(), { onProgress: ({ offset }) => offsets.push(offset) });
    equal([report.status, report.written, offsets.length > 1], ['completed', 3, true]);
    equal((await copies.find().sort('id').toArray()).length, 3);
    const csv = 'id;year\nc1;1\nc2;x\n';
    const options = { format: 'csv', separator: ';', types: { year: 'number' } } as const;
    const error = await refused('MALFORMED_CSV', () => copies.import(csv, options)).catch(() => undefined);
    const passed = await copies.import(new Blob([csv]), { ...options, onError: 'continue' });
    equal([passed.written, passed.failed, (await app.importErrors(passed.import_id))[0]?.line], [1, 1, 3]);
    equal(error?.details['line'] ?? 3, 3);
    equal((await copies.import('', {})).written, 0);
  },

  'what is refused has a code, and what is no Granary is told': async (target) => {
    const app = open(target);
    const error = await refused('VALIDATION_FAILED', () => app.collection('a b' as 'books').create());
    equal([error.status, typeof error.requestId, Object.keys(error.details)], [400, 'string', ['name']]);
    const other = granary({ ...target, key: 'app_wrong' });
    await refused('UNAUTHENTICATED', () => other.collection('books').find().toArray());
    const nowhere = granary({ ...target, url: 'http://127.0.0.1:9', retries: 1 });
    await refused('NETWORK_ERROR', () => nowhere.collection('books').get('b1'));
    await refused('NETWORK_ERROR', () => take(nowhere.changes(), 1));
    const elsewhere = granary({ ...target, url: `${target.url}/nothing` });
    // A browser asks first whether it may call a route, and tells nobody why not.
    const code = 'document' in globalThis ? 'NETWORK_ERROR' : 'NOT_SUPPORTED';
    await refused(code, () => take(elsewhere.changes(), 1));
    const late = granary({
      ...target,
      fetch: (_, init) =>
        new Promise((__, reject) => {
          init!.signal!.addEventListener('abort', () => reject(init!.signal!.reason as Error));
        }),
      timeoutMs: 50,
    });
    await refused('TIMEOUT', () => late.collection('books').get('b1'));
    const strange = granary({ ...target, fetch: async () => new Response('<html>', { status: 404 }) });
    await refused('INVALID_ANSWER', () => strange.collection('books').get('b1'));
  },

  'a key is asked for with each call, and again where it cannot be had': async (target) => {
    let calls = 0;
    const key = async () => {
      calls += 1;
      if (calls === 2) throw new Error('not now');
      return target.key;
    };
    const app = granary<Library>({ ...target, key });
    await app.collection('books').store(shelf);
    equal(await app.collection('books').find().count(), 3);
    equal(calls, 3);
    const never = granary<Library>({ ...target, key: () => new Promise(() => {}) });
    await refused('TIMEOUT', () => never.collection('books').get('b1', { timeoutMs: 50 }));
  },

  'a feed by a token goes on with the next one, also where that cannot be had at once': async (target) => {
    const app = await withShelf(target);
    const subscriptions = [{ as: 'books', collection: 'books' }];
    let tokens = 0;
    const token = async () => {
      tokens += 1;
      if (tokens === 2) throw new TypeError('not now');
      return (await app.createFeedToken({ subscriptions, ttl_seconds: 1 })).token;
    };
    const feed = granary<Library>({ url: target.url, app: target.app }).changes<Book>({ token });
    const change = take(feed, 1);
    change.catch(() => {});
    await until(() => feed.status === 'closed' || (tokens > 2 && feed.status === 'open'));
    await app.collection('books').put({ id: 'b9', title: 'New', year: 2026 });
    equal(((await change)[0] as { id: string }).id, 'b9');
  },

  'numbers are exact where that is wanted': async (target) => {
    if (!('rawJSON' in JSON)) {
      try {
        granary({ ...target, numbers: 'exact' });
      } catch (error) {
        return equal((error as Error).name, 'TypeError');
      }
      throw new Error('an engine without source texts was taken');
    }
    const books = granary<Library>({ ...target, numbers: 'exact' }).collection('books');
    const price = '12345678901234567890.5';
    await books.put({ id: 'b1', title: 'Emma', year: 1_815, price: exactNumber(price) });
    const text = await (
      await fetch(`${target.url}/api/apps/${target.app}/collections/books/documents/b1`, {
        headers: { 'X-App-Key': target.key },
      })
    ).text();
    equal(text.includes(`"price":${price}`), true);
    equal(await books.get('b1'), { id: 'b1', title: 'Emma', year: 1_815, price });
  },
};
