import { readJson, type JsonObject } from '@granary/shared/json/value';
import { Verifier } from '../verify/verifier';
import { offersFor, type OfferSettings } from './offers';
import { verifyPresented } from './presented-payment';
import { cosmosMethod } from '../schemes/cosmos/scheme';

const key = Buffer.alloc(32);
const purchase = { appId: 'films', requestHash: Buffer.alloc(32), amountUtia: '5' };
const madeAtMs = Date.UTC(2026, 0, 1);
/** A service that has not heard from finance yet. */
const offersAt = (seconds: number): OfferSettings => ({
  keys: { current: () => Promise.resolve(key), accepted: () => Promise.resolve([key]) },
  methods: () => [cosmosMethod({ network: 'cosmos:celestia', address: 'celestia1to' })],
  areKnown: () => false,
  rates: { current: () => Promise.resolve(new Map()), recent: () => Promise.resolve([]) },
  networks: new Map(),
  APP_SHARE_PERCENT: 80,
  now: () => new Date(madeAtMs + seconds * 1_000),
});
const verifier = new Verifier([], () => new Date(madeAtMs));

test('a payment that was sent in time is asked for again while its network is not known, not refused for its quote', async () => {
  const [offer] = await offersFor(offersAt(0), purchase);
  const payload = { txHash: 'ab'.repeat(32) };
  const about = { x402Version: 1, scheme: 'exact', network: 'cosmos:celestia', quoteId: offer!.quoteId };
  const text = JSON.stringify({ ...about, payload });
  const payment = readJson(Buffer.from(text), { maxDepth: 16 }) as JsonObject;
  for (const [seconds, amountUtia] of [
    [1, '5'],
    [1, '6'],
    [301, '5'],
  ] as const) {
    const presented = verifyPresented({ offers: offersAt(seconds), verifier }, { ...purchase, amountUtia }, payment);
    await expect(presented).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  }
});
