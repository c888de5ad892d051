import {
  granary,
  type App,
  type ErrorCode,
  type Filter,
  type GranaryError,
  type Records,
  type Stored,
} from '@granary/client';

/**
 * It compiles, and so says which calls compile: what follows `@ts-expect-error` has to be refused by the compiler. It
 * is never run.
 */
interface Book {
  title: string;
  year: number;
  sold: boolean;
  tags?: string[];
  author?: { name: string };
}

interface Library {
  collections: { books: { document: Book } };
  views: { per_year: { row: { year: number; books: number }; variables: { from: number } } };
  queries: {
    since: { row: { id: string; title: string }; parameters: { year: number; shelf?: string } };
    shelved: { row: { id: string }; parameters: { shelf?: string } };
    all: { row: { id: string }; parameters: Record<string, never> };
  };
}

/** Compiles only for a type that is exactly the other. */
const is = <Expected>() => ({ of: <Actual>(_: [Expected, Actual] extends [Actual, Expected] ? Actual : never) => {} });

export async function known(app: App<Library>): Promise<void> {
  const books = app.collection('books');
  is<Stored<Book> | undefined>().of(await books.get('b1'));
  is<number>().of((await books.put({ id: 'b1', title: 'Emma', year: 1815, sold: true })).version);
  is<string[]>().of((await books.store([{ title: 'Emma', year: 1815, sold: true }])).ids);
  is<Pick<Stored<Book>, 'title' | 'year'>[]>().of(await books.find().select('title', 'year').toArray());
  is<Records<Stored<Book>>>().of(books.find({ year: { gte: 1800, lt: 1900 }, title: { startsWith: 'E' } }));
  books.find({ or: [{ sold: true }, { 'author.name': { contains: 'Austen' } }], tags: { contains: 'novel' } });
  books.find({ author: { name: 'Jane Austen' } }).sort('-year', 'author.name');
  await books.patch('b1', { tags: null, year: 1816 });
  for await (const change of books.changes({ find: { sold: true }, select: ['title'] })) {
    if (change.event === 'put') is<Stored<Book> | null | undefined>().of(change.document);
    else if (change.event === 'remove') is<'deleted' | 'filtered' | 'erased' | 'dropped'>().of(change.reason);
    else is<string>().of(change.message);
  }
  is<Stored<Book> | undefined>().of(books.follow().get('b1'));
  is<number | undefined>().of((await app.view('per_year').rows({ from: 1800 }).first())?.books);
  is<string | undefined>().of((await app.query('since').rows({ year: 1800 }).first())?.title);

  app.query('since').rows({ year: 1800, shelf: 'A' }, { version: '2' });
  is<string | undefined>().of((await app.query('shelved').rows().first())?.id);
  is<string | undefined>().of((await app.query('shelved').rows({ shelf: 'A' }).first())?.id);
  is<string | undefined>().of((await app.query('all').rows({}, { version: '1' }).first())?.id);
  is<string | undefined>().of((await app.query('all').rows().first())?.id);

  // @ts-expect-error There is no such collection.
  app.collection('bocks');
  // @ts-expect-error There is no such field.
  books.find({ titel: 'Emma' });
  // @ts-expect-error A number is not compared with a text.
  books.find({ year: { gte: '1800' } });
  // @ts-expect-error Numbers have no beginning.
  books.find({ year: { startsWith: 1 } });
  // @ts-expect-error There is no such operator.
  books.find({ title: { beginsWith: 'E' } });
  // @ts-expect-error An order of truth is no use.
  books.find({ sold: { gt: false } });
  // @ts-expect-error A condition in a list is one, too.
  books.find({ and: [{ titel: 'Emma' }] });
  // @ts-expect-error There is no such field to sort by.
  books.find().sort('titel');
  // @ts-expect-error There is no such field to select.
  books.find().select('titel');
  // @ts-expect-error What is not selected is not there.
  (await books.find().select('title').first())?.year;
  // @ts-expect-error An id is needed here.
  await books.put({ title: 'Emma', year: 1815, sold: true });
  // @ts-expect-error A field is missing.
  await books.store([{ title: 'Emma', year: 1815 }]);
  // @ts-expect-error A year is a number.
  await books.patch('b1', { year: '1816' });
  // @ts-expect-error The view has no such variable.
  app.view('per_year').rows({ form: 1800 });
  // @ts-expect-error A parameter is a number.
  app.query('since').rows({ year: '1800' });
  // @ts-expect-error The year is required.
  app.query('since').rows();
  // @ts-expect-error The year is required.
  app.query('since').rows({ shelf: 'A' });
  // @ts-expect-error The query has no such parameter.
  app.query('shelved').rows({ shelve: 'A' });
  // @ts-expect-error The query has no parameters.
  app.query('all').rows({ year: 1800 });
  // @ts-expect-error The order of a predefined query is its own.
  app.query('since').rows({ year: 1800 }).sort('title');
  await books.createIndex({ name: 'year', field_name: 'year', index_type: 'number' });
  // @ts-expect-error An index has a name.
  await books.createIndex({ field_name: 'year', index_type: 'number' });
  // @ts-expect-error There is no such type of index.
  await books.createIndex({ name: 'year', field_name: 'year', index_type: 'numeric' });
  // @ts-expect-error A map that is followed is read only.
  books.follow().set('b1', undefined);
}

export async function unknown(app: App): Promise<void> {
  const things = app.collection('anything');
  app.query('any').rows();
  app.query('any').rows({ year: 1800 });
  things.find({ whatever: { gte: 1 }, or: [{ other: true }] }).sort('-whatever');
  is<string | undefined>().of((await things.get('t1'))?.id);
  await things.put({ id: 't1', some: { deep: ['value', 1, null] } });
  // @ts-expect-error A document has no functions.
  await things.put({ id: 't1', some: () => 1 });
}

export function errors(error: GranaryError): void {
  is<ErrorCode>().of(error.code);
  // @ts-expect-error There is no such code.
  if (error.code === 'NOT_FOND') throw error;
}

export const filter: Filter<Book> = { year: { between: { from: 1800, to: 1900 } }, id: { in: ['b1', 'b2'] } };

// @ts-expect-error An app is needed.
granary({ url: 'http://localhost:8080' });
// @ts-expect-error A key is a text, or makes one.
granary({ url: 'http://localhost:8080', app: 'demo', key: 5 });
