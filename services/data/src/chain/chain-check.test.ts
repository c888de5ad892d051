import { createHash, randomBytes } from 'node:crypto';
import { chainStart, followChain, type StoredLink } from './chain-check';

/** By the definition in docs/hash-chain.md, not by the code under test. */
function chainOf(count: number): StoredLink[] {
  let previous: Buffer = Buffer.alloc(32);
  return Array.from({ length: count }, (_, at) => {
    const height = Buffer.alloc(8);
    height.writeBigUInt64BE(BigInt(at + 1));
    const content = randomBytes(32);
    previous = createHash('sha256').update(previous).update(height).update(content).digest();
    return { height: BigInt(at + 1), hash: previous, content };
  });
}

test('a chain is followed to its last link, in one go or page by page', () => {
  const links = chainOf(25);
  const end = { height: 25n, hash: links[24]!.hash };
  expect(followChain(chainStart, links)).toEqual(end);
  const middle = followChain(chainStart, links.slice(0, 10));
  expect(followChain(middle, links.slice(10))).toEqual(end);
  expect(followChain(chainStart, [])).toEqual(chainStart);
});

test('the first link that is altered, missing or out of order is named', () => {
  const altered = chainOf(5);
  altered[2]!.content = randomBytes(32);
  expect(() => followChain(chainStart, altered)).toThrow('link 3 does not follow from the link before it');
  const missing = chainOf(5);
  missing.splice(3, 1);
  expect(() => followChain(chainStart, missing)).toThrow('link 4 is missing');
  const swapped = chainOf(5);
  [swapped[1], swapped[2]] = [swapped[2]!, swapped[1]!];
  expect(() => followChain(chainStart, swapped)).toThrow('link 2 is missing');
});
