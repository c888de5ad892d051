import { rateKeyOf } from './rates';

test('a rate has one name for all spellings of an EVM address, and another for each Solana address', () => {
  const checksummed = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
  expect(rateKeyOf('eip155:84532', checksummed)).toBe('eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e');
  const [network, mint] = ['solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v'];
  expect(rateKeyOf(network, mint)).toBe(`${network}/${mint}`);
});
