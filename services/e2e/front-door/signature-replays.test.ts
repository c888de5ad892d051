import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { operatorKey, send, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { newWallet, signedRequest } from '../support/wallet-signing';

describe('signatures at two gateways', () => {
  let copies: Granary[] = [];
  beforeAll(async () => {
    const settings = { data: { MAINTENANCE_EVERY_MS: '1000' } };
    const first = await startGranary('wire', { settings });
    copies = [first, await startGranary('wire', { settings, databaseUrls: { data: first.databaseUrls.data } })];
  });
  afterAll(() => Promise.all(copies.map((copy) => copy.stop())));

  test('one that is sent 100 times at once to both changes something once, and is forgotten when it is old', async () => {
    const [{ url, databaseUrls }, other] = copies as [Granary, Granary];
    const owner = newWallet();
    const appId = `t-${randomUUID()}`;
    await send(url, 'POST', '/api/applications', {
      body: { app_id: appId, name: 'Owned', owner_address: owner.address },
      headers: { 'x-operator-key': operatorKey },
    });
    const body = JSON.stringify({ root: `${appId}::docs`, data: [{ n: 1 }] });
    const headers = { 'x-app-id': appId, ...signedRequest(owner, 'POST', '/store', body) };
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, at) => send(at % 2 === 0 ? url : other.url, 'POST', '/store', { headers, body })),
    );
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(1);
    const refused = answers.filter(({ status }) => status !== 202);
    expect(new Set(refused.map((answer) => [answer.status, answer.body['code']].join()))).toEqual(
      new Set(['409,SIGNATURE_USED']),
    );

    const query = JSON.stringify({ root: `${appId}::docs` });
    const reading = { 'x-app-id': appId, ...signedRequest(owner, 'POST', '/list', query) };
    expect((await send(other.url, 'POST', '/list', { headers: reading, body: query })).body['total']).toBe(1);

    const database = new Client({ connectionString: databaseUrls.data });
    await database.connect();
    try {
      const stored = () => database.query<{ count: string }>('select count(*) from used_signature');
      expect((await stored()).rows[0]!.count).toBe('1');
      await database.query('update used_signature set forget_at = now()');
      await eventually(async () => (await stored()).rows[0]!.count === '0');
    } finally {
      await database.end();
    }
  });
});
