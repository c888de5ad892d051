import { randomUUID } from 'node:crypto';
import { createLogger } from '@granary/shared/logger';
import { createPool, execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { eventually } from '@granary/testing/eventually';
import { encoded, simulatedNetwork, type Requirement } from '@granary/testing/x402-client';
import { newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { isPaymentPending } from '../support/priced-app';
import { startGranary } from '../support/own-granary';
import { newWallet, signedHeaders, signedRequest, type Wallet } from '../support/wallet-signing';

interface Grant {
  grant_id: string;
  user_key: string;
  limit_utia: number;
  spent_utia: number;
  revoked_at: string | null;
  code?: string;
}

interface Problem extends Record<string, unknown> {
  details: { idempotency_key?: string };
}

interface Answered extends Record<string, unknown> {
  records: unknown[];
  code: string;
  details: { reason?: string; status?: string; ticket_id?: string; idempotency_key?: string };
}

const price = 250_000;
const appShare = 200_000;

describe.each(transports)('grants of users (%s)', (transport) => {
  let granary: Granary;
  let pool: Pool;
  let claims: Pool;
  let app: TestApp;
  let wallet: Wallet;
  beforeAll(async () => {
    granary = await startGranary(transport, {
      settings: {
        payments: { X402_PAY_TO: 'wallets,simulated', X402_SETTLE_WAIT_MS: '500' },
        finance: { SIMULATED_BLOCK_MS: '100' },
      },
    });
    const log = createLogger('test', 'silent');
    const to = (url: string) => createPool({ url, size: 1, applicationName: 'test', log });
    [pool, claims] = [to(granary.databaseUrls.finance), to(granary.databaseUrls.payments)];
  });
  afterAll(async () => {
    await Promise.all([pool?.end(), claims?.end()]);
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    wallet = newWallet();
    [made, startedAtMs] = [0, Date.now()];
    await app.store('films', [{ id: 'one', title: 'Alien' }]);
    await priced(app, price);
    // Payments finds out which chain the wallets are on.
    await eventually(async () => {
      const path = `/api/apps/${app.appId}/collections/films/data`;
      const { accepts } = (await send<{ accepts: Requirement[] }>(granary.url, 'GET', path)).body;
      return accepts[0]?.network.startsWith('cosmos:');
    });
  });

  const priced = async (of: TestApp, utia: number) => {
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: utia };
    expect((await of.call('PUT', `/api/apps/${of.appId}/collections/films`, { read_price_config })).status).toBe(200);
  };
  const balanceOf = async (address: string): Promise<number> =>
    Number(
      (await row<{ balance: bigint }>(pool, sql`select balance from simulated_account where address = ${address}`))
        ?.balance ?? 0n,
    );
  /** Pays money of the faucet out to the wallet. */
  const fund = async (amount: number) => {
    const rich = await newApp(granary);
    const headers = { 'x-operator-key': operatorKey };
    await send(granary.url, 'POST', `/api/apps/${rich.appId}/faucet`, { body: { amount: amount * 2 }, headers });
    const body = { amount, payout_address: wallet.address };
    await eventually(
      async () => (await rich.call('POST', `/api/apps/${rich.appId}/payout/trigger`, body)).status === 202,
    );
    await eventually(async () => (await balanceOf(wallet.address)) >= amount);
  };
  const grants = '/api/authz/grants';
  let [made, startedAtMs] = [0, 0];
  /** Each of another second, for a signature is used once. */
  const create = (body: object) => {
    const text = JSON.stringify(body);
    made += 1;
    const headers = signedRequest(wallet, 'POST', grants, text, startedAtMs - 1_000 * made);
    return send<Grant>(granary.url, 'POST', grants, { body: Buffer.from(text), headers });
  };
  const granted = async (body: object) => {
    const made = await create(body);
    expect([made.status, made.text]).toEqual([201, expect.stringContaining('user_')]);
    return made.body;
  };
  const list = async () =>
    (await send<{ grants: Grant[] }>(granary.url, 'GET', grants, { headers: signedHeaders(wallet, grants) })).body
      .grants;
  /** Sent again while it is being settled, as one request. */
  const read = (userKey: string, key: string = randomUUID(), of = app) => {
    const path = `/api/apps/${of.appId}/collections/films/data`;
    const headers = { 'x-user-key': userKey, 'idempotency-key': key };
    return eventually(async () => {
      const answer = await send<Answered>(granary.url, 'GET', path, { headers });
      return isPaymentPending(answer) ? undefined : answer;
    });
  };
  const reason = async (userKey: string, of = app) => {
    const { status, body } = await read(userKey, randomUUID(), of);
    return [status, body.code, body.details?.reason];
  };
  const earned = async () => (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  const history = async (path: string, headers = {}) =>
    (await send<{ transactions: object[] }>(granary.url, 'GET', path, { headers })).body.transactions;

  test('a read is paid from the wallet of the user, and is in both histories', async () => {
    await fund(2_000_000);
    const { user_key: key, grant_id: id } = await granted({ limit_utia: 1_000_000, allowed_apps: [app.appId] });
    const answer = await read(key);
    expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('Alien')]);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - price);
    await eventually(async () => (await earned()) === appShare);
    expect(await list()).toEqual([expect.objectContaining({ grant_id: id, spent_utia: price, limit_utia: 1_000_000 })]);
    const transaction = {
      user_address: wallet.address,
      app_id: app.appId,
      operation_type: 'read',
      collection: 'films',
      amount: price,
      status: 'Completed',
      transaction_hash: expect.stringMatching(/^[0-9A-F]{64}$/) as string,
    };
    const ofUser = `/api/authz/transactions/${wallet.address}`;
    expect(await history(ofUser, signedHeaders(wallet, ofUser))).toEqual([expect.objectContaining(transaction)]);
    const ofApp = `/api/authz/transactions/app/${app.appId}`;
    expect(await history(ofApp, { 'x-app-key': app.key })).toEqual([expect.objectContaining(transaction)]);
  });

  test('the limit holds for many requests at once, and each is paid once', async () => {
    await fund(5_000_000);
    const { user_key: key } = await granted({ limit_utia: 4 * price });
    const answers = await Promise.all(Array.from({ length: 12 }, () => read(key)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(4);
    expect(new Set(answers.filter(({ status }) => status !== 200).map(({ body }) => body.details.reason))).toEqual(
      new Set(['allowance_spent']),
    );
    await eventually(async () => (await earned()) === 4 * appShare);
    expect(await balanceOf(wallet.address)).toBe(5_000_000 - 4 * price);
  });

  test('the same Idempotency-Key is paid once', async () => {
    await fund(2_000_000);
    const { user_key: key } = await granted({ limit_utia: 2_000_000 });
    const first = await read(key, 'once');
    const again = await read(key, 'once');
    expect([first.status, again.status, again.text]).toEqual([200, 200, first.text]);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - price);
  });

  test('a request without an Idempotency-Key that is not settled in time goes on by the key that its answer names', async () => {
    await fund(2_000_000);
    const { user_key: userKey } = await granted({ limit_utia: 2_000_000 });
    const path = `/api/apps/${app.appId}/collections/films/data`;
    const get = (headers: object) =>
      send<Answered & { idempotency_key: string }>(granary.url, 'GET', path, {
        headers: { 'x-user-key': userKey, ...headers },
      });
    const pending = await transaction(pool, async (tx) => {
      // Without blocks, the payment is not settled before the request is answered.
      await execute(tx, sql`select from simulated_chain for update`);
      return get({});
    });
    expect([pending.status, pending.body]).toMatchObject([
      503,
      { code: 'PAYMENT_PENDING', details: { status: 'PaymentConfirming' } },
    ]);
    const key = { 'idempotency-key': pending.body.details.idempotency_key! };
    const paid = await eventually(async () => {
      const answer = await get(key);
      return isPaymentPending(answer) ? undefined : answer;
    });
    expect([paid.status, paid.text]).toEqual([200, expect.stringContaining('Alien')]);
    expect((await get(key)).text).toBe(paid.text);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - price);
  });

  test('what was taken is answered, also when it has spent the grant or the grant was revoked meanwhile', async () => {
    await fund(2_000_000);
    const [spent, revoked] = [await granted({ limit_utia: price }), await granted({ limit_utia: 2 * price })];
    const path = `/api/apps/${app.appId}/collections/films/data`;
    const ask = ({ user_key: key, grant_id: id }: Grant) =>
      send<Answered>(granary.url, 'GET', path, { headers: { 'x-user-key': key, 'idempotency-key': id } });
    await transaction(pool, async (tx) => {
      // Without blocks, the payments are not settled before the requests are answered.
      await execute(tx, sql`select from simulated_chain for update`);
      for (const each of [spent, revoked]) expect(isPaymentPending(await ask(each))).toBe(true);
      // The answer waits for half a second only, in which a busy machine may not have taken anything yet.
      await eventually(async () => {
        const taken = sql`select from grant_deduction where grant_id in (${spent.grant_id}::uuid, ${revoked.grant_id}::uuid)`;
        return (await rows(tx, taken)).length === 2;
      });
    });
    const grant = `${grants}/${revoked.grant_id}`;
    await send(granary.url, 'DELETE', grant, { headers: signedRequest(wallet, 'DELETE', grant) });
    for (const { user_key: key, grant_id: id } of [spent, revoked]) expect((await read(key, id)).status).toBe(200);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - 2 * price);
  });

  test('what was taken is answered, also when the app does not take payments on the chain any more; nothing else is taken', async () => {
    await fund(2_000_000);
    const { user_key: key } = await granted({ limit_utia: 2 * price });
    const path = `/api/apps/${app.appId}/collections/films/data`;
    const headers = { 'x-user-key': key, 'idempotency-key': 'before' };
    const pending = await transaction(pool, async (tx) => {
      // Without blocks, the payment is not settled before the request is answered.
      await execute(tx, sql`select from simulated_chain for update`);
      return send<Answered>(granary.url, 'GET', path, { headers });
    });
    expect(isPaymentPending(pending)).toBe(true);
    const chosen = { payment_networks: [simulatedNetwork] };
    expect((await app.call('PATCH', `/api/applications/${app.appId}`, chosen)).status).toBe(200);
    await eventually(async () => {
      const { accepts } = (await send<{ accepts: Requirement[] }>(granary.url, 'GET', path)).body;
      return accepts.every(({ network }) => !network.startsWith('cosmos:'));
    });
    expect(await reason(key)).toEqual([402, 'PAYMENT_REFUSED', 'invalid_network']);
    const answer = await read(key, 'before');
    expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('Alien')]);
    expect((await list()).map(({ spent_utia: spent }) => spent)).toEqual([price]);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - price);
  });

  test('an Idempotency-Key of a payment that is forgotten is paid again', async () => {
    await fund(2_000_000);
    const { user_key: key } = await granted({ limit_utia: 2_000_000 });
    expect((await read(key, 'often')).status).toBe(200);
    await eventually(async () => (await earned()) === appShare);
    // As two days later.
    await execute(claims, sql`delete from claim where payer = ${wallet.address}`);
    expect((await read(key, 'often')).status).toBe(200);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - 2 * price);
    await eventually(async () => (await earned()) === 2 * appShare);
  });

  test('a deduction of one grant pays nothing by another, and not for anything else', async () => {
    await fund(2_000_000);
    const [one, two] = [await granted({ limit_utia: 1_000_000 }), await granted({ limit_utia: 1_000_000 })];
    const path = `/api/apps/${app.appId}/collections/films/data`;
    const deductionId = randomUUID();
    /** As anybody can write it who has a key. */
    const pay = async (userKey: string, query = '', collection = 'films') => {
      const asked = await send<Answered & { accepts: Requirement[] }>(granary.url, 'GET', path + query);
      const { network, extra } = asked.body.accepts[0]!;
      const payload = { userKey, deductionId, operation: 'read', collection };
      const payment = { x402Version: 1, scheme: 'exact', network, quoteId: extra.quoteId, payload };
      return eventually(async () => {
        const answer = await send<Answered>(granary.url, 'GET', path + query, {
          headers: { 'x-payment': encoded(payment) },
        });
        return isPaymentPending(answer) ? undefined : answer;
      });
    };
    // Its 200th unit of UTF-16 would be half of a character.
    const { status, body } = await pay(one.user_key, '', `${'a'.repeat(199)}😀😀`);
    expect([status, body.details?.reason]).toEqual([402, 'invalid_payload']);
    expect((await pay(one.user_key)).status).toBe(200);
    expect((await pay(one.user_key, '?limit=1')).status).toBe(402);
    expect((await pay(two.user_key)).status).toBe(200);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - 2 * price);
    await eventually(async () => (await earned()) === 2 * appShare);
  });

  test('what is being taken goes on when grants are made and revoked meanwhile', async () => {
    await fund(5_000_000);
    const made = await granted({ limit_utia: 4 * price });
    const reads = Promise.all(Array.from({ length: 4 }, () => read(made.user_key)));
    for (let at = 0; at < 4; at += 1) {
      const { grant_id: id } = await granted({ limit_utia: 1 });
      const path = `${grants}/${id}`;
      await send(granary.url, 'DELETE', path, { headers: signedRequest(wallet, 'DELETE', path) });
    }
    expect((await reads).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(await balanceOf(wallet.address)).toBe(5_000_000 - 4 * price);
  });

  /** Has writes cost something, and returns how one is sent by a key that pays for it. */
  const pricedWrites = async (utia: number) => {
    await app.call('PUT', `/api/apps/${app.appId}/collections/films`, { write_pricing: 'on' });
    const index = { name: 'by_n', collection: 'films', field_name: 'n', index_type: 'number' };
    const price_config = { pricing_model: 'per_access', price_per_access_utia: utia };
    await app.call('POST', `/api/apps/${app.appId}/indexes`, { ...index, price_config });
    const writer = { name: 'writer', permissions: ['Write'] };
    const { body } = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, writer);
    const documents = `/api/apps/${app.appId}/collections/films/documents`;
    return (headers: Record<string, string>, id = 'two') =>
      send<Problem>(granary.url, 'PUT', `${documents}/${id}`, { key: body.app_key, body: { n: 1 }, headers });
  };

  test('a write is paid, too', async () => {
    await fund(2_000_000);
    const write = await pricedWrites(1_000);
    const { user_key: key } = await granted({ limit_utia: 2_000_000 });
    const written = await eventually(async () => {
      const answer = await write({ 'x-user-key': key, 'idempotency-key': 'write' });
      return isPaymentPending(answer) ? undefined : answer;
    });
    expect([written.status, written.text]).toEqual([201, expect.any(String)]);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - 1_000);
  });

  test('a write that is being paid is promised as long as the gateway can keep it, and needs its request again beyond', async () => {
    await fund(2_000_000);
    const write = await pricedWrites(1_000);
    const { user_key: userKey } = await granted({ limit_utia: 2_000_000 });
    const go = (at: number) => write({ 'x-user-key': userKey, 'idempotency-key': `${at}` }, `${at}`);
    const many = Array.from({ length: 60 }, (_, at) => at);
    const pending = await transaction(pool, async (tx) => {
      // Without blocks, the payments are not settled before the requests are answered.
      await execute(tx, sql`select from simulated_chain for update`);
      return Promise.all(many.map(go));
    });
    expect(pending.map(({ status }) => status)).toEqual(many.map(() => 202));
    const left = many.filter((at) => !String(pending[at]!.body['message']).includes('then the write is done'));
    expect([left.length >= 10, left.length < many.length]).toEqual([true, true]);
    const done = await eventually(async () => {
      const answer = await go(left[0]!);
      return isPaymentPending(answer) ? undefined : answer;
    });
    expect(done.status).toBe(201);
  });

  test('a request without an Idempotency-Key that fails while it is paid goes on by the key that its error names', async () => {
    await fund(2_000_000);
    const write = await pricedWrites(1_000);
    const { user_key: userKey } = await granted({ limit_utia: 2_000_000 });
    await claims.query(`
      create function refuse_claims() returns trigger language plpgsql as
        $$ begin raise exception 'planted' using errcode = '53300'; end $$;
      create trigger refuse_claims before insert on claim for each row
        execute function refuse_claims()`);
    const failed = await write({ 'x-user-key': userKey });
    await claims.query('drop trigger refuse_claims on claim; drop function refuse_claims');
    const idempotencyKey = failed.body.details.idempotency_key;
    expect([failed.status === 503 || failed.status === 504, idempotencyKey]).toEqual([true, expect.any(String)]);
    const go = () =>
      eventually(async () => {
        const answer = await write({ 'x-user-key': userKey, 'idempotency-key': idempotencyKey! });
        return isPaymentPending(answer) ? undefined : answer;
      });
    const [first, again] = [await go(), await go()];
    expect([first.status, again.status, again.text]).toEqual([201, 201, first.text]);
    expect(await balanceOf(wallet.address)).toBe(2_000_000 - 1_000);
  });

  test('an encrypted index is paid, once, and is in the history of the user', async () => {
    await fund(3_000_000);
    const { user_key: key } = await granted({ limit_utia: 1_500_000 });
    const make = (field_name: string, idempotencyKey: string) =>
      eventually(async () => {
        const body = { name: `by_${field_name}`, collection: 'people', field_name, index_type: 'encrypted' };
        const headers = { 'x-user-key': key, 'idempotency-key': idempotencyKey };
        const answer = await app.call<Answered>('POST', `/api/apps/${app.appId}/indexes`, body, headers);
        return isPaymentPending(answer) ? undefined : answer;
      });
    const made = await make('email', 'first');
    expect([made.status, made.body]).toEqual([201, expect.objectContaining({ index_type: 'encrypted' })]);
    const again = await make('email', 'first');
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([201, 'true']);
    // The same definition again is free.
    expect((await make('email', 'second')).status).toBe(200);
    const refused = await make('phone', 'third');
    expect([refused.status, refused.body.details.reason]).toEqual([402, 'allowance_spent']);
    expect(await balanceOf(wallet.address)).toBe(2_000_000);
    expect(await earned()).toBe(0);
    const ofUser = `/api/authz/transactions/${wallet.address}`;
    expect(await history(ofUser, signedHeaders(wallet, ofUser))).toEqual([
      expect.objectContaining({ operation_type: 'index', amount: 1_000_000, status: 'Completed' }),
    ]);
  });

  test('what a grant does not cover is refused, and nothing is taken', async () => {
    await fund(2_000_000);
    const other = await newApp(granary);
    await other.store('films', [{ id: 'one' }]);
    await priced(other, 10);
    const { user_key: key } = await granted({ limit_utia: price - 1, allowed_apps: [app.appId] });
    expect(await reason(key)).toEqual([402, 'PAYMENT_REFUSED', 'allowance_spent']);
    expect(await reason(key, other)).toEqual([402, 'PAYMENT_REFUSED', 'target_not_allowed']);
    expect(await reason(`user_${'A'.repeat(43)}`)).toEqual([402, 'PAYMENT_REFUSED', 'user_key_invalid']);
    expect(await reason('nonsense')).toEqual([402, 'PAYMENT_REFUSED', 'user_key_invalid']);
    const brief = await granted({ limit_utia: 1_000_000, expires_at: '2031-01-01T00:00:00+01:00' });
    await execute(pool, sql`update user_grant set expires_at = now() where id = ${brief.grant_id}::uuid`);
    expect(await reason(brief.user_key)).toEqual([402, 'PAYMENT_REFUSED', 'grant_expired']);
    const both = await send<Answered>(granary.url, 'GET', `/api/apps/${app.appId}/collections/films/data`, {
      headers: { 'x-user-key': key, 'x-agent-key': 'x' },
    });
    expect(both.status).toBe(400);
    expect((await list()).map(({ spent_utia: spent }) => spent)).toEqual([0, 0]);
    expect(await balanceOf(wallet.address)).toBe(2_000_000);
  });

  test('a revoked grant pays nothing more, and nobody else can end it', async () => {
    await fund(2_000_000);
    const { user_key: key, grant_id: id } = await granted({ limit_utia: 2_000_000 });
    const path = `${grants}/${id}`;
    const revoke = (by: Wallet) =>
      send<Grant>(granary.url, 'DELETE', path, { headers: signedRequest(by, 'DELETE', path) });
    const stranger = await revoke(newWallet());
    expect([stranger.status, stranger.body.code]).toEqual([404, 'GRANT_NOT_FOUND']);
    const revoked = await revoke(wallet);
    expect([revoked.status, revoked.body.revoked_at]).toEqual([200, expect.any(String)]);
    expect(await reason(key)).toEqual([402, 'PAYMENT_REFUSED', 'grant_revoked']);
    expect(await balanceOf(wallet.address)).toBe(2_000_000);
  });

  test('a grant that its user has revoked on the chain itself pays nothing more, and holds up nobody in the same transaction', async () => {
    await fund(2_000_000);
    const { user_key: revoked } = await granted({ limit_utia: 1_000_000 });
    const revokedWallet = wallet;
    wallet = newWallet();
    await fund(2_000_000);
    const { user_key: usable } = await granted({ limit_utia: 1_000_000 });
    // As a MsgRevoke does.
    await execute(pool, sql`delete from simulated_grant where granter = ${revokedWallet.address}`);
    const answers = await Promise.all([read(revoked), read(revoked), read(usable)]);
    expect(answers.map(({ status, body }) => [status, body.details?.reason])).toEqual([
      ...[0, 1].map(() => [402, 'grant_revoked']),
      [200, undefined],
    ]);
    expect(await balanceOf(revokedWallet.address)).toBe(2_000_000);
    await eventually(async () => (await earned()) === appShare);
    wallet = revokedWallet;
    expect((await list())[0]).toMatchObject({ spent_utia: 0 });
    // Nothing was sent that could fail.
    const ofUser = `/api/authz/transactions/${wallet.address}`;
    expect(await history(ofUser, signedHeaders(wallet, ofUser))).toEqual([]);
  });

  test('a wallet without money pays nothing, and others in the same transaction are not held up', async () => {
    const { user_key: poor } = await granted({ limit_utia: 2_000_000 });
    const poorWallet = wallet;
    wallet = newWallet();
    await fund(2_000_000);
    const { user_key: rich } = await granted({ limit_utia: 2_000_000 });
    const [refused, answer] = await Promise.all([read(poor), read(rich)]);
    expect([refused.status, refused.body.details.reason]).toEqual([402, 'insufficient_funds']);
    expect(answer.status).toBe(200);
    wallet = poorWallet;
    expect((await list())[0]!.spent_utia).toBe(0);
  });

  test.each([
    [{}, 400],
    [{ limit_utia: 0 }, 400],
    [{ limit_utia: 1.5 }, 400],
    [{ limit_utia: 1, allowed_apps: ['a b'] }, 400],
    [{ limit_utia: 1, allowed_apps: [] }, 400],
    [{ limit_utia: 1, allowed_apps: null }, 400],
    [{ limit_utia: 1, expires_at: null }, 400],
    [{ limit_utia: null }, 400],
    [{ limit_utia: 1, expires_at: '2020-01-01T00:00:00Z' }, 400],
    [{ limit_utia: 1, expires_at: 'soon' }, 400],
    [{ limit_utia: 1, other: 1 }, 400],
  ])('%j is refused', async (body, status) => {
    expect((await create(body)).status).toBe(status);
  });

  test('a signature makes one grant, and only that of its wallet', async () => {
    const text = '{"limit_utia":5}';
    const headers = signedRequest(wallet, 'POST', grants, text);
    const post = (more: object = {}) =>
      send<Grant>(granary.url, 'POST', grants, { body: Buffer.from(text), headers: { ...headers, ...more } });
    expect((await post()).status).toBe(201);
    expect((await post()).body.code).toBe('SIGNATURE_USED');
    expect((await post({ 'x-wallet-address': newWallet().address })).status).toBe(401);
    const operator = await send(granary.url, 'POST', grants, {
      body: { limit_utia: 5 },
      headers: { 'x-operator-key': operatorKey },
    });
    expect([401, 403]).toContain(operator.status);
  });
});
