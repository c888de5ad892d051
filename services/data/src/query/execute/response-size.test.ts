import { ResponseSizeEstimate } from './response-size';

test('there is room for an answer like the last one, whole and hardly more', () => {
  const size = new ResponseSizeEstimate();
  size.learn(1_000, 365_000, true);
  expect(size.expected(1_000)).toBeGreaterThan(365_000);
  expect(size.expected(1_000)).toBeLessThan(400_000);
});

test('room goes with the records that may come: few after many, and many after a few that were all that was asked for', () => {
  const size = new ResponseSizeEstimate();
  size.learn(1_000, 365_000, true);
  expect(size.expected(10)).toBeLessThan(8_192);
  size.learn(10, 3_650, true);
  expect(size.expected(1_000)).toBeGreaterThan(365_000);
});

test('a page that is not full tells how many records there are, so a high limit takes no room for them', () => {
  const size = new ResponseSizeEstimate();
  size.learn(5, 1_825, false);
  expect(size.expected(1_000)).toBeGreaterThan(1_825);
  expect(size.expected(1_000)).toBeLessThan(4_096);
  size.learn(0, 12, false);
  expect(size.expected(1_000)).toBeLessThan(1_024);
});

test('of the first answer nothing is known, and an empty one does not tell how long records are', () => {
  const size = new ResponseSizeEstimate();
  const first = size.expected(1_000);
  expect(size.expected(1)).toBe(first);
  size.learn(0, 12, false);
  expect(size.expected(1_000)).toBe(first);
});
