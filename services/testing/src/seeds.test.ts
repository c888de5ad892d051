import { partsOf, seedOf, seedVariable } from './seeds';

const before = process.env[seedVariable];
afterEach(() => {
  process.env[seedVariable] = before;
});

test('a quarter of the cases is the same in every run, and the others follow the seed of the run', () => {
  const partsWith = (seed: string) => {
    process.env[seedVariable] = seed;
    return partsOf('a proof', 10);
  };
  const [first, again, other] = [partsWith('one'), partsWith('one'), partsWith('other')];
  expect(first.map((part) => part.cases)).toEqual([3, 7]);
  expect(again).toEqual(first);
  expect(other[0]).toEqual(first[0]);
  expect(other[1]!.seed).not.toBe(first[1]!.seed);
});

test('two proofs of one run have different seeds', () => {
  expect(seedOf('a proof')).not.toBe(seedOf('another proof'));
});
