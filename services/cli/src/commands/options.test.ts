import { addAssignment, choicesParser, positiveInteger } from './options.ts';

test('values are given by name, each once', () => {
  expect(addAssignment('formula=a=b', addAssignment('year='))).toEqual({ year: '', formula: 'a=b' });
  expect(Object.keys(addAssignment('__proto__=1'))).toEqual(['__proto__']);
  expect(() => addAssignment('year=2', { year: '1' })).toThrow('"year" has a value already');
  for (const text of ['year', '=1', '']) expect(() => addAssignment(text)).toThrow('name=value');
});

test('choices are taken in any case of letters, and a misspelt one is refused with those that there are', () => {
  const parse = choicesParser(['Read', 'Write']);
  expect(parse('read, WRITE')).toEqual(['Read', 'Write']);
  for (const text of ['', 'Read,', 'Reed']) expect(() => parse(text)).toThrow('Allowed choices are Read, Write.');
});

test('a count is a whole number of at least 1', () => {
  expect(positiveInteger('10')).toBe(10);
  for (const text of ['0', '-1', '1.5', '1e3', '', '9007199254740993'])
    expect(() => positiveInteger(text)).toThrow('whole number');
});
