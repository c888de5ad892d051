import { UsageError } from '../failure.ts';
import { exportQuery, exportRequestOf } from './export-request.ts';
import { columnTypesOf, kindOf } from './formats.ts';
import { importDefinitionOf } from './import-request.ts';

test.each([
  ['books.csv', 'csv', false, undefined],
  ['dir.csv/BOOKS.JSON', 'json', false, undefined],
  ['books.ndjson.gz', 'ndjson', true, undefined],
  ['books.jsonl', 'ndjson', false, undefined],
  ['books.tsv.GZ', 'csv', true, 'tab'],
  ['books', undefined, false, undefined],
  ['books.gz', undefined, true, undefined],
  ['-', undefined, false, undefined],
])('%s says its format', (name, format, isGzip, separator) => {
  expect(kindOf(name)).toEqual({ format, isGzip, separator });
});

test('a flag says the format against the name, and stdout has lines', () => {
  expect(exportRequestOf('books', { out: 'books.csv', format: 'json' })).toMatchObject({
    format: 'json',
    isGzip: false,
  });
  expect(exportRequestOf('books', { out: 'books.csv.gz' })).toMatchObject({ format: 'csv', isGzip: true });
  expect(exportRequestOf('books', {})).toMatchObject({ format: 'ndjson', isGzip: false, height: undefined });
});

test('options become parameters, a filter as it is written', () => {
  const find = '{"n": {"gte": 1.50}}';
  const options = { format: 'csv', find, select: 'a, b.c', columns: 'b.c,a', at: '0', history: true } as const;
  expect(exportQuery(exportRequestOf('books', { ...options, deleted: true, formulas: 'escape' }))).toEqual({
    format: 'csv',
    find,
    select: 'a,b.c',
    columns: 'b.c,a',
    at: 0,
    history: true,
    deleted: 'include',
    formulas: 'escape',
  });
  expect(exportQuery(exportRequestOf('books', { format: 'json' }))).toEqual({ format: 'ndjson' });
});

test.each([
  [{ find: '{year: 1}' }, '--find is not JSON'],
  [{ at: '-1' }, '--at -1 is not a height'],
  [{ at: '' }, '--at  is not a height'],
  [{ at: '9007199254740992' }, 'is not a height'],
  [{ columns: 'id' }, '--columns is for tables'],
  [{ format: 'csv', columns: 'id,,a' }, '--columns has an empty name'],
  [{ select: '' }, '--select has an empty name'],
  [{ out: '' }, '--out is empty'],
] as const)('%j is refused', (options, message) => {
  expect(() => exportRequestOf('books', options)).toThrow(message);
});

test('what is imported is said by name and options', () => {
  expect(importDefinitionOf('a.tsv', { types: 'year:number,a:b:json', columns: 'year,a:b', dryRun: true })).toEqual({
    format: 'csv',
    mode: 'upsert',
    on_error: 'abort',
    dry_run: true,
    types: { year: 'number', 'a:b': 'json' },
    columns: ['year', 'a:b'],
    separator: 'tab',
  });
  expect(importDefinitionOf('-', {})).toMatchObject({ format: 'ndjson' });
  expect(() => importDefinitionOf('a.txt', {})).toThrow(UsageError);
  expect(() => importDefinitionOf('a.json', { separator: ';' })).toThrow('--separator is for tables');
});

test.each(['year', 'year:int', ':number', 'a:number,a:string', ''])('types of columns are not %j', (text) => {
  expect(() => columnTypesOf(text)).toThrow(UsageError);
});
