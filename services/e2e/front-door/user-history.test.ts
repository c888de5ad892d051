import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { newWallet, signedHeaders } from '../support/wallet-signing';

describe.each(transports)('the history of a user (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
  });
  afterAll(() => granary.stop());
  const wallet = newWallet();
  const path = `/api/authz/transactions/${wallet.address}`;
  const empty = { user_address: wallet.address, transactions: [], total: 0, limit: 100, offset: 0 };
  const get = (target: string, headers: Record<string, string>) => send(granary.url, 'GET', target, { headers });

  test('the history of a user is shown to the wallet that signs, and to the operator', async () => {
    for (const target of [path, path.slice('/api'.length), `${path}/`]) {
      expect(await get(target, signedHeaders(wallet, target))).toMatchObject({ status: 200, body: empty });
    }
    const page = `${path}?limit=5&offset=2`;
    expect((await get(page, signedHeaders(wallet, page))).body).toEqual({ ...empty, limit: 5, offset: 2 });
    const asOperator = await get(path, { 'x-operator-key': operatorKey });
    expect(asOperator).toMatchObject({ status: 200, body: empty });
  });

  test('the history of a user is refused to everyone else', async () => {
    const good = signedHeaders(wallet, path);
    const stranger = newWallet();
    const strangers = signedHeaders(stranger, path);
    // A minute beyond the window, for the loop below takes a while on a busy machine.
    const later = Date.now() + 360_000;
    const wrong: Array<[string, Record<string, string>]> = [
      ['no headers', {}],
      ['a key', { 'x-app-key': app.key }],
      ['another wallet', strangers],
      ['another wallet under this address', { ...strangers, 'x-wallet-address': wallet.address }],
      ['the signature of another wallet', { ...good, 'x-signature': strangers['x-signature']! }],
      ['a signature for another path', signedHeaders(wallet, `${path}?limit=1`)],
      ['an altered time', { ...good, 'x-timestamp': String(Number(good['x-timestamp']) + 1) }],
      ['a signature from the past', signedHeaders(wallet, path, Date.now() - 301_000)],
      ['a signature from the future', signedHeaders(wallet, path, later)],
      ['a malleable signature', { ...good, 'x-signature': highS(good['x-signature']!) }],
      ['half a signature', { ...good, 'x-signature': good['x-signature']!.slice(0, 40) }],
      ['no public key', Object.fromEntries(Object.entries(good).filter(([name]) => name !== 'x-pubkey'))],
      ['no time', Object.fromEntries(Object.entries(good).filter(([name]) => name !== 'x-timestamp'))],
      ['a time that is none', { ...good, 'x-timestamp': 'now' }],
      ['a wrong operator key', { ...good, 'x-operator-key': 'wrong' }],
    ];
    for (const [who, headers] of wrong) {
      const { status, body } = await get(path, headers);
      expect([who, status, body['code']]).toEqual([who, 401, 'UNAUTHENTICATED']);
    }
    const otherPath = `/api/authz/transactions/${stranger.address}`;
    expect((await get(otherPath, signedHeaders(wallet, otherPath))).status).toBe(401);
  });
});

/** The other signature that the curve allows for the same text. */
function highS(signature: string): string {
  const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
  const bytes = Buffer.from(signature, 'base64');
  const s = order - BigInt(`0x${bytes.subarray(32).toString('hex')}`);
  return Buffer.concat([bytes.subarray(0, 32), Buffer.from(s.toString(16).padStart(64, '0'), 'hex')]).toString(
    'base64',
  );
}
