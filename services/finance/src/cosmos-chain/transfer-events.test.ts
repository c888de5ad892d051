import { feeCollector } from '../chain/module-accounts';
import { readTransfers } from './transfer-events';

const fees = feeCollector('celestia');
const event = (type: string, attributes: Record<string, string>) => ({
  type,
  attributes: Object.entries(attributes).map(([key, value]) => ({ key, value })),
});
const read = (...events: Array<ReturnType<typeof event>>) => readTransfers(events, 'utia', fees);

test('a transfer is read with its place; the fee is none', () => {
  const found = read(
    event('coin_spent', { spender: 'a', amount: '500utia' }),
    event('transfer', { recipient: fees, sender: 'a', amount: '500utia' }),
    event('tx', { fee: '500utia', fee_payer: 'a' }),
    event('transfer', { recipient: 'b', sender: 'a', amount: '70utia', msg_index: '0' }),
  );
  expect(found).toEqual([{ eventIndex: 3, sender: 'a', recipient: 'b', amount: 70n }]);
});

test('the sender of a transfer that names none is the one whose money was spent before it', () => {
  const found = read(
    event('coin_spent', { spender: 'payer', amount: '500utia' }),
    event('transfer', { recipient: fees, sender: 'payer', amount: '500utia' }),
    event('coin_spent', { spender: 'a', amount: '3utia' }),
    event('transfer', { recipient: 'b', amount: '1utia' }),
    event('transfer', { recipient: 'c', amount: '2utia' }),
  );
  expect(found.map(({ sender, recipient }) => [sender, recipient])).toEqual([
    ['a', 'b'],
    ['a', 'c'],
  ]);
});

test.each([
  ['5ibc/AB,70utia,1zzz', 70n],
  ['70utia', 70n],
  [`${2n ** 63n}utia`, 2n ** 63n],
  [`${2n ** 256n - 1n}utia`, 2n ** 256n - 1n],
  ['70utiax', undefined],
  ['70xutia', undefined],
  ['factory/a/utia', undefined],
  ['', undefined],
  ['0utia', undefined],
])('of the coins %j only those of the denomination count', (amount, expected) => {
  expect(read(event('transfer', { recipient: 'b', sender: 'a', amount }))[0]?.amount).toBe(expected);
});

test('attributes in base64, as before CometBFT 0.37, are read too', () => {
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  const plain = { recipient: 'b', sender: 'a', amount: '70utia' };
  const encoded = Object.fromEntries(Object.entries(plain).map(([key, value]) => [base64(key), base64(value)]));
  expect(read(event('transfer', encoded))).toEqual([{ eventIndex: 0, sender: 'a', recipient: 'b', amount: 70n }]);
});
