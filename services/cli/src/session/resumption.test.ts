import { resumption } from './resumption.ts';

test.each([
  [['tail'], 'granary tail --since 4.1-ab'],
  [['--app=demo', 'tail', 'books', 'year>=1900'], "granary --app=demo tail books 'year>=1900' --since 4.1-ab"],
  [['tail', '--since', '0', '--ids'], 'granary tail --ids --since 4.1-ab'],
  [['tail', '--since=now', "title=it's"], "granary tail 'title=it'\\''s' --since 4.1-ab"],
  [['tail', '--', '-x', ''], "granary tail --since 4.1-ab -- -x ''"],
])('%j goes on by %s', (words, line) => {
  expect(resumption(words, { '--since': '4.1-ab' })).toBe(line);
});

test('several options have other values, each of them once', () => {
  const words = ['query', '--limit=20', 'books', '--cursor', 'a', '--', '--limit'];
  const line = 'granary query books --cursor b --limit 5 -- --limit';
  expect(resumption(words, { '--cursor': 'b', '--limit': '5' })).toBe(line);
});
