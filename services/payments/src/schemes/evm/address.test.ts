import { spelledOnce } from './address';

test('all spellings of an EVM address become one, and other texts stay', () => {
  const checksummed = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
  const lower = '0x036cbd53842c5426634e7929541ec2318f3dcf7e';
  expect([checksummed, lower].map(spelledOnce)).toEqual([lower, lower]);
  const mint = 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v';
  expect(spelledOnce(mint)).toBe(mint);
});
