import { requestLine, requestObject, shownPath, type ForwardedRequest } from './request-line.ts';

const request: ForwardedRequest = {
  time: new Date(2026, 0, 2, 3, 4, 5, 67),
  method: 'GET',
  path: '/api/apps/demo/changes?since=0&token=secret',
  status: 200,
  ms: 12.6,
  bytes: 2_048,
  end: 'answered',
};

const plain = (_: string, text: string) => text;

test('a line says what was asked for, what came of it, how long it took and how much it was', () => {
  expect(requestLine(request, plain)).toBe('03:04:05.067 GET /api/apps/demo/changes?since=0&token=… 200 13 ms 2.0 KiB');
  const refused = { ...request, path: '/store', status: 422, code: 'SCHEMA_VIOLATION', error: 'A document\nis wrong' };
  expect(requestLine(refused, plain)).toBe(
    '03:04:05.067 GET /store 422 13 ms 2.0 KiB SCHEMA_VIOLATION: A document is wrong',
  );
  expect(requestLine({ ...request, path: '/', end: 'closed' }, plain)).toMatch(/2\.0 KiB \(closed by the program\)$/);
  expect(requestLine({ ...request, path: '/', status: undefined, end: 'broken' }, plain)).toContain('GET / - 13 ms');
});

test('an object says the same', () => {
  expect(requestObject({ ...request, status: 404, code: 'NOT_FOUND', error: 'No' })).toEqual({
    ...request,
    time: request.time.toISOString(),
    path: '/api/apps/demo/changes?since=0&token=…',
    status: 404,
    ms: 13,
    code: 'NOT_FOUND',
    error: 'No',
  });
});

test.each([
  ['/a?token=x', '/a?token=…'],
  ['/a?b=1&TOKEN=x&c=2', '/a?b=1&TOKEN=…&c=2'],
  ['/a?%74oken=x', '/a?%74oken=…'],
  ['/a?token=', '/a?token=…'],
  ['/a?token', '/a?token'],
  ['/a?app_key=x&user-secret.$eq=y', '/a?app_key=…&user-secret.$eq=…'],
  ['/a?tokens=1&monkey=2&keyboard=3', '/a?tokens=1&monkey=2&keyboard=3'],
  ['/a?x=%&token=%', '/a?x=%&token=…'],
  ['/token=x', '/token=x'],
])('no secret of %s is shown', (path, shown) => {
  expect(shownPath(path)).toBe(shown);
});
