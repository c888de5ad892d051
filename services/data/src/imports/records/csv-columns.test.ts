import { columnsProblem } from './csv-columns';

test.each([
  [[], 'There are no columns'],
  [['a', ''], 'Column 2 has no name'],
  [['a', 'b', 'a'], 'The column "a" is there twice'],
  [['a..b'], 'The path of the column "a..b" has an empty step'],
  [['.a'], 'The path of the column ".a" has an empty step'],
  [['a.'], 'The path of the column "a." has an empty step'],
  [['a.b.c', 'x', 'a.b'], 'The column "a.b" has a value, and "a.b.c" is inside of it'],
  [['a.__proto__'], 'The path of the column "a.__proto__" has the step __proto__'],
  [['a', 'a-b', 'a b.c', 'A'], undefined],
  [['constructor', 'toString.x'], undefined],
])('the problem of the columns %j is %j', (columns, problem) => {
  expect(columnsProblem(columns)).toBe(problem);
});

test('columns and the steps of a path are bounded', () => {
  const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `c${index}`);
  expect(columnsProblem(names(1_000))).toBeUndefined();
  expect(columnsProblem(names(1_001))).toBe('There are 1001 columns, and at most 1000 are allowed');
  expect(columnsProblem([names(64).join('.')])).toBeUndefined();
  expect(columnsProblem([names(65).join('.')])).toMatch(/has more than 64 steps$/);
});
