import { ForeseenHeads } from './head-cache';

const headAt = (height: bigint) => ({
  height,
  ordinal: height + 7n,
  hash: Buffer.alloc(32, Number(height)),
  catalogRevision: 3n,
});

test('the head that the last commit left is foreseen, and nothing of its documents is kept', () => {
  const heads = new ForeseenHeads();
  heads.found(1n, headAt(1n));
  const link = { ...headAt(2n), content: Buffer.alloc(32), entries: [{ id: 'a', body: Buffer.alloc(1_000) }] };
  heads.left(1n, link);
  expect(Object.keys(heads.of(1n)!).sort()).toEqual(['catalogRevision', 'hash', 'height', 'ordinal']);
  expect(heads.of(1n)).toEqual(headAt(2n));
});

test('where another copy moves the head too, it is not foreseen until it has been found as it was left for a while', () => {
  const heads = new ForeseenHeads();
  heads.found(1n, headAt(1n));
  heads.left(1n, headAt(2n));
  heads.found(1n, headAt(5n));
  expect([heads.of(1n), heads.last(1n)]).toEqual([undefined, headAt(5n)]);
  for (let height = 6n; height < 14n; height++) {
    heads.left(1n, headAt(height));
    expect(heads.of(1n)).toBeUndefined();
    heads.found(1n, headAt(height));
  }
  expect(heads.of(1n)).toEqual(headAt(13n));
  heads.left(1n, undefined);
  expect([heads.of(1n), heads.last(1n)]).toEqual([undefined, undefined]);
});
