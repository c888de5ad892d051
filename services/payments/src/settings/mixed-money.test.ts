import { mixedMoney, uncreditedMoney } from './mixed-money';
import { parsePaymentAddresses } from './payment-addresses';

const evm = (id: number) => `eip155:${id}=0x00000000000000000000000000000000000000aa`;
const [base, baseSepolia, anvil] = [evm(8453), evm(84532), evm(31337)];
const devnet = 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1=11111111111111111111111111111112';
const cosmos = (id: string) => `cosmos:${id}=celestia1qyqszqgpqyqszqgpqyqszqgpqyqszqgpreswh3`;
const [celestia, simulatedChain] = [cosmos('celestia'), cosmos('granary-simulated-1')];

test('payments are taken in play money, in test money or in real money', () => {
  const mixed = (text: string) => mixedMoney(parsePaymentAddresses(text));
  const taken = ['', 'simulated', 'wallets,simulated', `simulated,${simulatedChain}`, `wallets,${base}`];
  const alsoTaken = [`${celestia},${base}`, `${celestia},${baseSepolia}`, `${baseSepolia},${anvil},${devnet}`];
  for (const text of [...taken, ...alsoTaken]) expect([text, mixed(text)]).toEqual([text, undefined]);
  const refused = [
    `simulated,${celestia}`,
    `${anvil},simulated`,
    `${simulatedChain},${base}`,
    `${base},${baseSepolia}`,
  ];
  for (const text of [...refused, `${celestia},${base},${devnet}`]) {
    expect([text, mixed(text)]).toEqual([text, expect.stringContaining('money of one kind only')]);
  }
  expect(mixed(`wallets,simulated,${base}`)).toBe(
    'payments are taken in money of one kind only, not on simulated (play money) beside eip155:8453 (real money)',
  );
});

test('wallets on a simulated chain are not credited for real money, nor wallets on a real chain for play money', () => {
  const problem = (text: string, chain: string) => uncreditedMoney(parsePaymentAddresses(text), chain);
  const [ofPlay, ofMoney] = ['cosmos:granary-simulated-1', 'cosmos:celestia'];
  for (const text of ['wallets,simulated', 'simulated', `${baseSepolia},${anvil}`]) {
    expect([text, problem(text, ofPlay)]).toEqual([text, undefined]);
  }
  for (const text of [`wallets,${base}`, `${celestia},${base}`, `wallets,${baseSepolia}`, base]) {
    expect([text, problem(text, ofMoney)]).toEqual([text, undefined]);
  }
  for (const text of [base, `wallets,${base}`]) {
    expect([text, problem(text, ofPlay)]).toEqual([text, expect.stringContaining('nobody can pay out')]);
  }
  for (const text of ['simulated', 'wallets,simulated']) {
    expect([text, problem(text, ofMoney)]).toEqual([text, expect.stringContaining('is not credited to them')]);
  }
  expect(problem(`wallets,${anvil}`, ofPlay)).toContain('money of one kind only');
});
