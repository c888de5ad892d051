import type { App, Json, Records, Stored } from '@granary/client';
import type { BooksDocument, Library } from './library.js';

/**
 * It uses the types that `granary types` writes for the app of `described-app.json`: it compiles, and what follows
 * `@ts-expect-error` has to be refused by the compiler. It is never run.
 */

/** Compiles only for a type that is exactly the other. */
const is = <Expected>() => ({ of: <Actual>(_: [Expected, Actual] extends [Actual, Expected] ? Actual : never) => {} });

export async function documents(app: App<Library>): Promise<void> {
  const books = app.collection('books');
  const emma = { title: 'Emma', sold: true, author: { name: 'Jane Austen' } };
  is<Stored<BooksDocument> | undefined>().of(await books.get('emma'));
  await books.put({ id: 'emma', ...emma });
  await books.put({ id: 'emma', ...emma, year: null, language: 'fr', tags: ['novel', 1, null], notes: { deep: [{}] } });
  await books.put({ id: 'emma', ...emma, class: 'A', 'it\'s "quoted"': 1, 'two\nlines': 2, größe: 3 });
  await books.store([emma, { ...emma, id: null, '\u202eright': 'a\u2028b' }]);
  await books.patch('emma', { year: 1815, language: null });
  is<string | null | undefined>().of((await books.find().first())?.author.born);
  is<'en' | 'fr' | 'it\'s "odd"' | null | undefined>().of((await books.find().first())?.language);
  is<Pick<Stored<BooksDocument>, 'title' | 'year'>[]>().of(await books.find().select('title', 'year').toArray());
  books.find({ year: { gte: 1800, in: [1815, null] }, title: { startsWith: 'E' }, language: 'en' });
  books
    .find({ or: [{ sold: true }, { 'author.name': { contains: 'Austen' } }], tags: { contains: 'novel' } })
    .sort('-year');

  // @ts-expect-error There is no such collection.
  app.collection('bocks');
  // @ts-expect-error A year is a number.
  await books.put({ id: 'emma', ...emma, year: '1815' });
  // @ts-expect-error The title is missing.
  await books.put({ id: 'emma', sold: true, author: { name: 'Jane Austen' } });
  // @ts-expect-error The name of the author is missing.
  await books.put({ id: 'emma', title: 'Emma', sold: true, author: {} });
  // @ts-expect-error What is required may not be null.
  await books.put({ id: 'emma', ...emma, title: null });
  // @ts-expect-error A field that may be left out is not undefined.
  await books.put({ id: 'emma', ...emma, year: undefined });
  // @ts-expect-error There is no such language.
  await books.put({ id: 'emma', ...emma, language: 'de' });
  // @ts-expect-error There is no such field.
  await books.put({ id: 'emma', ...emma, titel: 'Emma' });
  // @ts-expect-error A document has no functions.
  await books.put({ id: 'emma', ...emma, notes: { deep: () => 1 } });
  // @ts-expect-error Numbers have no beginning.
  books.find({ year: { startsWith: '18' } });
  // @ts-expect-error There is no such operator.
  books.find({ year: { above: 1800 } });
  // @ts-expect-error There is no such language to ask for.
  books.find({ language: { in: ['de'] } });
  // @ts-expect-error There is no such field to sort by.
  books.find().sort('titel');
}

export async function rows(app: App<Library>): Promise<void> {
  const perYear = await app
    .view('per_year')
    .rows({ from: 1800, by: 'Jane Austen' }, { find: { books: { gt: 1 } } })
    .first();
  is<number | undefined>().of(perYear?.books);
  is<string | null | undefined>().of(perYear?.author.name);
  is<Records<Stored<BooksDocument>>>().of(app.view('old').rows());
  const title = await app.view('titles').rows().first();
  is<string | undefined>().of(title?.id);
  is<string | undefined>().of(title?.title);

  // @ts-expect-error There is no such view.
  app.view('per_month');
  // @ts-expect-error The view has no such variable.
  app.view('per_year').rows({ form: 1800 });
  // @ts-expect-error A year is a number.
  app.view('per_year').rows({ from: '1800' });
  // @ts-expect-error This view has no variables.
  app.view('old').rows({ from: 1800 });
  // @ts-expect-error The rows do not have what the view does not select.
  is<number | null | undefined>().of(title?.year);
}

export async function records(app: App<Library>): Promise<void> {
  const since = app.query('books_since').rows({ year: 1800, languages: 'en,fr', 'is sold': true, limit: 5 });
  is<string | undefined>().of((await since.first())?.title);
  const some = await app.query('per-year').rows().first();
  is<Json | undefined>().of(some?.misspelt);
  is<string | undefined>().of(some?.title);

  app.query('books_since').rows({ year: 1800 });

  // @ts-expect-error There is no such query.
  app.query('books_until');
  // @ts-expect-error A year is a number.
  app.query('books_since').rows({ year: '1800' });
  // @ts-expect-error The query has no such parameter.
  app.query('books_since').rows({ year: 1800, since: 1800 });
  // @ts-expect-error The year is required.
  app.query('books_since').rows();
  // @ts-expect-error The year is required.
  app.query('books_since').rows({ languages: 'en,fr' });
  // @ts-expect-error The records do not have what the query does not select.
  is<boolean | undefined>().of(some?.sold);
}

/** Of these collections the service does not know all fields. */
export async function loose(app: App<Library>): Promise<void> {
  await app.collection('loose').put({ id: 'l1', score: 1, whatever: [{ deep: true }] });
  await app.collection('__proto__').put({ id: 'p1', any: { thing: null } });
  await app.collection('constructor').put({ id: 'c1' });
  await app.collection('Stored').put({ id: 's1', Json: 'text' });
  is<number | null | undefined>().of((await app.view('2-loose').rows().first())?.score);

  // @ts-expect-error A score is a number.
  await app.collection('loose').put({ id: 'l1', score: '1' });
}
