import { optionsOfQuery, optionsText } from './import-options';

const parsed = (requested: Parameters<typeof optionsText>[0]) => JSON.parse(optionsText(requested)) as object;

test('what is left out has its default, and lists of a URL are read', () => {
  expect(parsed({})).toEqual({ format: 'ndjson', mode: 'upsert', on_error: 'abort', dry_run: false });
  const query = { format: 'csv', columns: 'id, a.b', types: 'a.b:number, a:b:json', separator: 'tab' } as const;
  expect(parsed(optionsOfQuery(query))).toEqual({
    format: 'csv',
    mode: 'upsert',
    on_error: 'abort',
    dry_run: false,
    columns: ['id', 'a.b'],
    types: { 'a.b': 'number', 'a:b': 'json' },
    separator: '\t',
  });
});

test.each([
  [{ types: 'year' }, /year is no name and type/],
  [{ types: ':number' }, /no name and type/],
  [{ types: 'year:date' }, /date is none of string, number, boolean, json/],
  [{ types: 'a:number,a:json' }, /names a twice/],
])('%j is refused', (query, message) => {
  expect(() => optionsOfQuery({ format: 'csv', ...query })).toThrow(message);
});

test('what is for tables is refused for other formats', () => {
  for (const requested of [
    { columns: ['a'] },
    { types: {} },
    { empty: 'null' as const },
    { separator: ';' as const },
  ]) {
    expect(() => optionsText(requested)).toThrow(/is for the format csv/);
  }
});
