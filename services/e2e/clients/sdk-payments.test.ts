import { createClient, type OnChainDBClient, type X402PaymentResult, type X402Quote } from '@onchaindb/sdk';
import { eventually } from '@granary/testing/eventually';
import { CosmosWallet } from '../support/cosmos-wallet';
import { startSdkFixture, type SdkFixture } from './sdk';
import { pricedNotes } from '../support/priced-app';

const price = 1_000;

let fixture: SdkFixture;
let wallet: CosmosWallet;
let client: OnChainDBClient;
beforeAll(async () => {
  fixture = await startSdkFixture({
    settings: { payments: { X402_PAY_TO: 'wallets' }, finance: { SIMULATED_BLOCK_MS: '100' } },
  });
  const { app, granary } = fixture;
  wallet = await CosmosWallet.open(granary, 1_000_000);
  const { key, store } = await pricedNotes<{ accepts: unknown[] }>(granary, app, price);
  client = createClient({ endpoint: granary.url, appId: app.appId, appKey: key });
  // The client offers to pay as soon as `payments` has learnt from `finance` which chain the wallets are on.
  await eventually(async () => (await store()).body.accepts.length > 0);
});
afterAll(async () => {
  await wallet?.close();
  await fixture?.stop();
});

/** What its users write: the wallet sends the money, with the quote as the memo. */
async function pay(quote: X402Quote): Promise<X402PaymentResult> {
  const outputs = [{ address: quote.brokerAddress, amount: BigInt(quote.amountRaw) }] as const;
  const txHash = await wallet.send(wallet.sign({ outputs, memo: quote.quoteId }));
  return { txHash, network: quote.network, sender: wallet.address, chainType: 'cosmos', paymentMethod: 'native' };
}

test('the published client pays for writes from a wallet, by the hash of what it has sent', async () => {
  const quotes: X402Quote[] = [];
  const stored = await client.store({ collection: 'notes', data: [{ id: 'one', text: 'paid' }] }, (quote) => {
    quotes.push(quote);
    return pay(quote);
  });
  expect(quotes).toMatchObject([{ chainType: 'cosmos', paymentMethod: 'native', amountRaw: String(price) }]);
  expect(stored).toMatchObject({ id: 'one', confirmed: true });
  const { app } = fixture;
  expect((await app.list('notes')).body).toMatchObject({ total: 1, records: [{ id: 'one', text: 'paid' }] });
  const wallet = `/api/apps/${app.appId}/wallet`;
  await eventually(async () => (await app.call<{ balance: number }>('GET', wallet)).body.balance === price * 0.8);
});

test('an upload is paid in the same way', async () => {
  const blob = Buffer.from('harvest');
  const { blob_id: id } = await client.uploadBlob({ collection: 'notes', blob, metadata: { text: 'paid' } }, pay);
  const { app, granary } = fixture;
  expect(await (await fetch(`${granary.url}/api/apps/${app.appId}/blobs/notes/${id}`)).text()).toBe('harvest');
});
