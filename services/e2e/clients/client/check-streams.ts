import { granary } from '@granary/client';
import {
  equal,
  open,
  refused,
  shelf,
  take,
  until,
  withShelf,
  type Book,
  type Library,
  type Target,
} from './check-support.js';

/** Checks of feeds, maps and files, which are read or sent piece by piece. */
export const streamChecks: Record<string, (target: Target) => Promise<void>> = {
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
};
