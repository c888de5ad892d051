import { simulatedAsset } from '../src/schemes/simulated/token';
import { requirementText, type Offer } from '../src/quotes/offer';
import type { PaymentMethod } from '../src/networks/payment-method';
import { cosmosMethod } from '../src/schemes/cosmos/scheme';
import { evmMethods } from '../src/schemes/evm/methods';
import { solanaMethods } from '../src/schemes/solana/methods';
import { version1NameOf } from '../src/verify/version1-names';

const solana = 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp';
const token = { network: solana, mint: 'Mint', decimals: 6, program: 'token' } as const;
const methods = [
  cosmosMethod({ network: 'cosmos:granary-simulated-1', address: 'celestia1payee' }),
  ...evmMethods([{ network: simulatedAsset.network, address: '0xPayee' }], [simulatedAsset]),
  ...solanaMethods([{ network: solana, address: 'SolanaPayee' }], [token], 'FeePayer'),
];
const offerOf = (method: PaymentMethod, changes: Partial<Offer['request']> = {}): Offer => ({
  method,
  request: { appId: 'shop', requestHash: Buffer.from('ff00fe', 'hex'), ...changes },
  quoteId: 'AQ-_',
  terms: { expiresAtSeconds: 1_800_000_000, amountUtia: 9_007_199_254_740_991n, appSharePpm: 333_333 },
  amount: 123_456_789_012_345_678_901n,
});
const parsed = (text: string) => JSON.parse(text) as Record<string, unknown>;

test.each(methods.map((method) => ({ name: method.network, method })))(
  'the requirement of $name has the members of x402 and of the method, in both versions',
  ({ method }) => {
    const offer = offerOf(method);
    const common = { scheme: 'exact', payTo: method.payTo, asset: method.asset, maxTimeoutSeconds: 300 };
    const extra = {
      quoteId: 'AQ-_',
      app: 'shop',
      request: '_wD-',
      ...method.extra,
      ...(method.hasMemo && { memo: 'AQ-_' }),
      costBreakdown: { app: 3002396749180578, platform: 6004802505560413, total: 9007199254740991 },
      pricing: { baseAmount: '9007199254740991', baseAsset: 'utia', expiresAt: 1_800_000_000 },
    };
    const amount = '123456789012345678901';
    expect(parsed(requirementText(2, offer))).toEqual({ ...common, network: method.network, amount, extra });
    const network = version1NameOf(method.network) ?? method.network;
    expect(parsed(requirementText(1, offer))).toEqual({ ...common, network, maxAmountRequired: amount, extra });
  },
);

test('what is settled before it is done says so, and no text of a name or an application breaks the JSON', () => {
  const strange = 'a"b\\c\u2028';
  const method: PaymentMethod = {
    network: strange,
    version1Network: strange,
    payTo: strange,
    asset: strange,
    rateOf: undefined,
    extra: { name: strange },
  };
  const requirement = parsed(requirementText(1, offerOf(method, { appId: strange, isUpfront: true })));
  expect(requirement).toMatchObject({ network: strange, payTo: strange, asset: strange });
  expect(requirement['extra']).toMatchObject({ app: strange, name: strange, paymentFlow: 'upfront' });
});
