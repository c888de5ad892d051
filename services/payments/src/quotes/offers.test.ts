import { offerRead, offersFor, type OfferSettings } from './offers';
import { cosmosMethod } from '../schemes/cosmos/scheme';

const key = Buffer.alloc(32);
const network = 'cosmos:celestia';
const settings: OfferSettings = {
  keys: { current: () => Promise.resolve(key), accepted: () => Promise.resolve([key]) },
  methods: () => [cosmosMethod({ network, address: 'celestia1to' })],
  rates: { current: () => Promise.resolve(new Map()), recent: () => Promise.resolve([]) },
  minUtia: () => 1_000n,
  networks: new Map([[network, { isOpen: () => true }]]),
  APP_SHARE_PERCENT: 80,
  now: () => new Date(),
};

test.each([
  ['999', 0, `Payments are taken on ${network} from 1000 utia on`],
  ['1000', 1, undefined],
  ['1001', 1, undefined],
])(
  'what costs %s utia can be paid in %i ways on a network that takes payments from 1000 utia on',
  async (amountUtia, count, why) => {
    const purchase = { appId: 'films', requestHash: Buffer.alloc(32), amountUtia, isUpfront: false };
    expect(await offersFor(settings, purchase)).toHaveLength(count);
    const request = { purchase, resource: '/films', description: 'films', error: '', isForGrant: false };
    const { acceptsJson, tooLittle } = await offerRead(settings, request);
    expect(JSON.parse(acceptsJson)).toHaveLength(count);
    expect(tooLittle).toBe(why);
  },
);
