import { exactNumber, granary, type GranaryError, type IndexDefinition } from '@granary/client';
import { equal, open, refused, shelf, take, withShelf, type Library, type Target } from './check-support.js';

/** Checks of calls that have one answer. */
export const documentChecks: Record<string, (target: Target) => Promise<void>> = {
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

  'an index has the type, the fields and the options of its definition': async (target) => {
    const app = await withShelf(target);
    const books = app.collection('books');
    const make = async (definition: IndexDefinition) => {
      const { name, collection, field_name, fields, index_type, unique } = await books.createIndex(definition);
      return [name, collection, fields ?? field_name, index_type, unique];
    };
    equal(await make({ name: 'year', field_name: 'year', index_type: 'number', options: { unique: true } }), [
      'year',
      'books',
      'year',
      'number',
      true,
    ]);
    equal(await make({ name: 'words', field_name: 'title', index_type: 'fulltext' }), [
      'words',
      'books',
      'title',
      'fulltext',
      false,
    ]);
    equal(await make({ name: 'both', fields: ['title', 'year'], index_type: 'composite' }), [
      'both',
      'books',
      ['title', 'year'],
      'composite',
      false,
    ]);
    equal((await books.find({ title: { $search: 'emma' } }).first())?.id, 'b1');
    await refused('UNIQUE_VIOLATION', () => books.put({ id: 'b4', title: 'Persuasion', year: 1815 }));
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
