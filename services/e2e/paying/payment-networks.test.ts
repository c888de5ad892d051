import { createLogger } from '@granary/shared/logger';
import { createPool, execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import {
  decoded,
  encoded,
  newPayer,
  simulatedName,
  simulatedNetwork,
  version1,
  type Requirement,
} from '@granary/testing/x402-client';
import { newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { isPaymentPending } from '../support/priced-app';
import { startGranary } from '../support/own-granary';

interface Refusal extends Record<string, unknown> {
  error: string;
  accepts: Requirement[];
  details: Record<string, unknown>;
}

describe.each(transports)('the networks on which an application is paid (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let pool: Pool;
  let chain: string;
  beforeAll(async () => {
    granary = await startGranary(transport, {
      settings: { payments: { X402_PAY_TO: 'simulated,wallets', WRITE_UTIA_PER_KB: '7' } },
    });
    pool = createPool({
      url: granary.databaseUrls.data,
      size: 1,
      applicationName: 'test',
      log: createLogger('test', 'silent'),
    });
    // The chain of the wallets becomes known after the start.
    chain = await eventually(async () => {
      const { text } = await send(granary.url, 'GET', '/x402/supported');
      return /"(cosmos:[^"]+)"/.exec(text)?.[1];
    });
  });
  afterAll(async () => {
    await pool?.end();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('films', [{ id: 'one', title: 'Alien' }]);
    const body = {
      read_price_config: { pricing_model: 'per_access', price_per_access_utia: 5 },
      write_pricing: 'on',
    };
    expect((await app.call('PUT', `/api/apps/${app.appId}/collections/films`, body)).status).toBe(200);
  });

  const own = () => `/api/applications/${app.appId}`;
  const choose = (payment_networks: unknown, headers: Record<string, string> = {}) =>
    app.call<Refusal>('PATCH', own(), { payment_networks }, headers);
  const read = (headers: Record<string, string> = {}) =>
    send<Refusal>(granary.url, 'GET', `/api/apps/${app.appId}/collections/films/data`, { headers });
  const networksOf = (accepts: readonly Requirement[]) => accepts.map(({ network }) => network);
  const newKey = async (...permissions: string[]) => {
    const body = { name: permissions.join(), permissions };
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, body);
    return made.body.app_key;
  };

  test('every answer 402 of the app offers the chosen networks only, in both versions, and null offers all again', async () => {
    const all = await read();
    expect(networksOf(all.body.accepts)).toEqual([chain, simulatedName]);
    const chosen = await choose([simulatedName, simulatedNetwork]);
    expect([chosen.status, chosen.body['payment_networks']]).toEqual([200, [simulatedNetwork]]);
    expect((await app.call('GET', own())).body).toEqual(chosen.body);
    expect((await send(granary.url, 'GET', own())).body).not.toHaveProperty('payment_networks');
    const writer = { key: await newKey('Write'), body: { title: 'Heat' } };
    const answers = [
      await read(),
      await send<Refusal>(granary.url, 'PUT', `/api/apps/${app.appId}/collections/films/documents/two`, writer),
      await app.call<Refusal>('GET', `/api/apps/${app.appId}/indexes/encrypted-quote`),
    ];
    expect(answers.map(({ status }) => status)).toEqual([402, 402, 200]);
    for (const { body, headers } of answers) {
      expect(networksOf(body.accepts)).toEqual([simulatedName]);
      const header = decoded<{ accepts: Requirement[] }>(headers.get('payment-required'));
      expect(networksOf(header.accepts)).toEqual([simulatedNetwork]);
    }
    const skills = async () => (await send(granary.url, 'GET', `/api/skills/${app.appId}/skills.md`)).text;
    expect(await skills()).toContain(`x402 payments are taken on \`${simulatedNetwork}\``);
    const other = await newApp(granary);
    expect((await other.call('GET', `/api/applications/${other.appId}`)).body['payment_networks']).toBeNull();
    expect((await choose(null)).body['payment_networks']).toBeNull();
    expect(networksOf((await read()).body.accepts)).toEqual([chain, simulatedName]);
    expect(await skills()).not.toContain('x402 payments are taken on');
  });

  test('a payment on another network is refused; a quote that was made before the choice is paid where it says', async () => {
    const before = (await read()).body.accepts;
    const payer = await newPayer();
    expect((await choose([chain])).status).toBe(200);
    const reasonOf = async (payment: object) => {
      const { status, body } = await read({ 'x-payment': encoded(payment) });
      expect([status, networksOf(body.accepts)]).toEqual([402, [chain]]);
      return body.details['reason'];
    };
    const simulated = before.find(({ network }) => network === simulatedName)!;
    expect(await reasonOf(await version1(payer, simulated, { withQuote: false }))).toBe('invalid_network');
    const { quoteId } = (await read()).body.accepts[0]!.extra;
    expect(await reasonOf({ ...(await version1(payer, simulated)), quoteId })).toBe('invalid_network');
    const paid = await eventually(async () => {
      const answer = await read({ 'x-payment': encoded(await version1(payer, simulated)) });
      return isPaymentPending(answer) ? undefined : answer;
    });
    expect([paid.status, paid.text]).toEqual([200, expect.stringContaining('Alien')]);
  });

  test('only networks that are offered can be chosen, by a key with Admin', async () => {
    for (const unknown of ['base', 'eip155:8453', 'cosmos:celestia', 'toString', '']) {
      const { status, body } = await choose([simulatedName, unknown]);
      expect([status, body['code']]).toEqual([400, 'VALIDATION_FAILED']);
      if (unknown === '') continue;
      expect(body.details).toEqual({
        payment_networks: [`is not offered: ${unknown}`],
        offered_networks: [chain, simulatedNetwork],
      });
    }
    for (const wrong of [[], 'simulated', [7], undefined, {}]) expect((await choose(wrong)).status).toBe(400);
    for (const key of [await newKey('Read', 'Write'), (await newApp(granary)).key]) {
      const body = { payment_networks: [simulatedName] };
      expect((await send(granary.url, 'PATCH', own(), { key, body })).status).toBe(403);
    }
    expect((await app.call('GET', own())).body['payment_networks']).toBeNull();
  });

  test('a 402 says so where none of the chosen networks is offered any more', async () => {
    await choose([simulatedName]);
    // As if the operator had offered this one when it was chosen.
    await execute(pool, sql`update application set payment_networks = '{eip155:8453}' where app_id = ${app.appId}`);
    const gone = await eventually(async () => {
      const answer = await read();
      return answer.body.accepts.length === 0 && answer;
    });
    expect([gone.status, gone.headers.get('payment-required')]).toEqual([402, null]);
    expect(gone.body.error).toBe(
      'The read costs 5 utia. None of the networks on which the application takes x402 payments is offered at the moment: eip155:8453',
    );
    expect(gone.body.details).toMatchObject({ amount_utia: 5, payment_networks: ['eip155:8453'] });
  });
});
