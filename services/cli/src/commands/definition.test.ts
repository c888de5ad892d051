import { UsageError } from '../failure.ts';
import type { Terminal } from '../terminal/terminal.ts';
import { jsonWith, namedDefinition } from './definition.ts';

const noTerminal = {} as Terminal;

test('members go before those of an object, whose text stays as it is written', () => {
  expect(jsonWith(' {"n": 0.10000000000000000001 }\n', { name: 'a"b' })).toBe(
    '{"name":"a\\"b","n": 0.10000000000000000001 }',
  );
  expect(jsonWith('{ }', { name: 'a' })).toBe('{"name":"a" }');
  expect(jsonWith('{"n":1}', {})).toBe('{"n":1}');
  expect(jsonWith('{}', {})).toBe('{}');
});

test('a definition gets the name that it lacks, and one of another name is refused', async () => {
  await expect(namedDefinition(noTerminal, '{"n":1.0}', 'a')).resolves.toBe('{"name":"a","n":1.0}');
  await expect(namedDefinition(noTerminal, '{"name":"a","n":1.0}', 'a')).resolves.toBe('{"name":"a","n":1.0}');
  await expect(namedDefinition(noTerminal, '{"name":"b"}', 'a')).rejects.toThrow(UsageError);
  for (const text of ['[]', 'null', '"a"', '{']) {
    await expect(namedDefinition(noTerminal, text, 'a')).rejects.toThrow(UsageError);
  }
});
