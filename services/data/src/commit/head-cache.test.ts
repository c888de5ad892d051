import { HeadCache } from './head-cache';

const headAt = (height: bigint) => ({
  height,
  ordinal: height + 7n,
  hash: Buffer.alloc(32, Number(height)),
  catalogRevision: 3n,
});

test('the head after the last commit is expected, and nothing of its documents is kept', () => {
  const heads = new HeadCache();
  heads.observed(1n, headAt(1n));
  const link = { ...headAt(2n), content: Buffer.alloc(32), entries: [{ id: 'a', body: Buffer.alloc(1_000) }] };
  heads.committed(1n, link);
  expect(Object.keys(heads.expected(1n)!).sort()).toEqual(['catalogRevision', 'hash', 'height', 'ordinal']);
  expect(heads.expected(1n)).toEqual(headAt(2n));
});

test('where another replica moves the head too, none is expected until eight commits in a row have found it unmoved', () => {
  const heads = new HeadCache();
  heads.observed(1n, headAt(1n));
  heads.committed(1n, headAt(2n));
  heads.observed(1n, headAt(5n));
  expect([heads.expected(1n), heads.latest(1n)]).toEqual([undefined, headAt(5n)]);
  for (let height = 6n; height < 14n; height++) {
    heads.committed(1n, headAt(height));
    expect(heads.expected(1n)).toBeUndefined();
    heads.observed(1n, headAt(height));
  }
  expect(heads.expected(1n)).toEqual(headAt(13n));
  heads.committed(1n, undefined);
  expect([heads.expected(1n), heads.latest(1n)]).toEqual([undefined, undefined]);
});
