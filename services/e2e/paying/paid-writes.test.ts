import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import {
  decoded,
  encoded,
  newPayer,
  simulatedNetwork,
  version1,
  version2,
  type Requirement,
} from '@granary/testing/x402-client';
import { newApp, operatorKey, send, transports, type Body, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { isPaymentPending } from '../support/priced-app';

interface Priced extends Record<string, unknown> {
  accepts: Requirement[];
  code: string;
  ticket_id: string;
  blob_id: string;
  details: { reason?: string; amount_utia?: number; pricing_model?: string; size_bytes?: number };
}

/** Of a write, by the index on `author`. */
const premium = 1_000;
/** 80 %. */
const appShare = 800;
const reservationMs = 1_000;

describe.each(transports)('writes that cost something (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let writeKey: string;
  beforeAll(async () => {
    const payments = { X402_PAY_TO: 'simulated', AGENT_RESERVATION_MS: String(reservationMs) };
    granary = await startGranary(transport, { settings: { payments } });
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'writer',
      permissions: ['Write'],
    });
    writeKey = made.body.app_key;
    const collection = { name: 'posts', write_pricing: 'on' };
    expect((await app.call('POST', `/api/apps/${app.appId}/collections`, collection)).status).toBe(201);
    await index('by_author', { field_name: 'author', price_config: perAccess(premium) });
  });

  const perAccess = (utia: number) => ({ pricing_model: 'per_access', price_per_access_utia: utia });
  const index = async (name: string, definition: object) => {
    const body = { name, collection: 'posts', index_type: 'btree', ...definition };
    const { status, text } = await app.call('POST', `/api/apps/${app.appId}/indexes`, body);
    expect([status < 300, text]).toEqual([true, text]);
  };
  const store = (data: object[]) => ({ root: `${app.appId}::posts`, data });
  /** A request with the key that may write only; again while a payment is being settled. */
  const write = async (method: string, path: string, body: Body, headers: Record<string, string> = {}) => {
    for (;;) {
      const answer = await send<Priced>(granary.url, method, path, { key: writeKey, body, headers });
      if (!isPaymentPending(answer) && answer.status !== 503) return answer;
      await delay(100);
    }
  };
  const documents = `/api/apps/${'{app}'}/collections/posts/documents`;
  const documentPath = (id: string) => `${documents.replace('{app}', app.appId)}/${id}`;
  const asked = async (method: string, path: string, body: Body, headers: Record<string, string> = {}) => {
    const answer = await write(method, path, body, headers);
    expect([answer.status, answer.text]).toEqual([402, expect.stringContaining('PAYMENT_REQUIRED')]);
    return answer.body.accepts[0]!;
  };
  const earned = async (): Promise<number> =>
    (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  const height = async (): Promise<number> =>
    (await app.call<{ height: number }>('GET', `/api/apps/${app.appId}/commits?limit=1`)).body.height;
  const total = async (): Promise<number | null> => (await app.list('posts')).body.total;

  test('a key with Admin writes free, one with Write pays what the quote says, and the money arrives', async () => {
    await app.store('posts', [{ id: 'own', author: 'owner' }]);
    const body = store([{ id: 'one', author: 'ada' }]);
    const refused = await write('POST', '/store', body);
    expect([refused.status, refused.headers.get('cache-control')]).toEqual([402, 'no-store']);
    expect(refused.body).toMatchObject({
      code: 'PAYMENT_REQUIRED',
      error: `The write costs ${premium} utia`,
      details: { amount_utia: premium, pricing_model: 'per_access', fields: ['author'] },
    });
    expect(refused.body.details.size_bytes).toBe(JSON.stringify(body).length);
    expect(await total()).toBe(1);
    const requirement = refused.body.accepts[0]!;
    expect(requirement.extra).toMatchObject({ paymentFlow: 'upfront' });
    const payer = await newPayer();
    const paid = await write('POST', '/store', body, { 'x-payment': encoded(await version1(payer, requirement)) });
    expect([paid.status, paid.headers.get('cache-control')]).toEqual([202, 'no-store']);
    const settled = JSON.parse(paid.headers.get('x-payment-response')!) as object;
    expect(settled).toMatchObject({ success: true, payer: payer.address, network: simulatedNetwork, amount: '1000' });
    expect(await total()).toBe(2);
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('a payment of version 2 is taken, and its answer comes again without another write', async () => {
    const body = store([{ id: 'one', author: 'ada' }]);
    const { headers } = await write('POST', '/store', body);
    const requirement = decoded<{ accepts: Requirement[] }>(headers.get('payment-required')).accepts[0]!;
    const payment = { 'payment-signature': encoded(await version2(await newPayer(), requirement)) };
    const first = await write('POST', '/store', body, payment);
    expect([first.status, decoded(first.headers.get('payment-response'))]).toEqual([
      202,
      expect.objectContaining({ success: true, amount: '1000' }),
    ]);
    const before = await height();
    const again = await write('POST', '/store', body, payment);
    expect([again.status, again.body, again.headers.get('idempotency-replayed')]).toEqual([202, first.body, 'true']);
    expect(await height()).toBe(before);
  });

  test('a payment writes once, though it is sent 40 times at once, and pays for nothing else', async () => {
    const body = store([{ author: 'ada' }]);
    const payment = await version1(await newPayer(), await asked('POST', '/store', body));
    const answers = await Promise.all(
      Array.from({ length: 40 }, () => write('POST', '/store', body, { 'x-payment': encoded(payment) })),
    );
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect([answers[0]!.status, await total()]).toEqual([202, 1]);
    const other = await write('POST', '/store', store([{ author: 'bob' }]), { 'x-payment': encoded(payment) });
    expect([other.status, other.body.details.reason]).toEqual([402, 'quote_invalid']);
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('a payment writes once, whichever key of the app sends it', async () => {
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'second',
      permissions: ['Write'],
    });
    const keys = [writeKey, made.body.app_key];
    const body = store([{ author: 'ada' }]);
    const path = `/api/apps/${app.appId}/blobs/posts`;
    const type = { 'content-type': 'text/plain' };
    const stored = { 'x-payment': encoded(await version1(await newPayer(), await asked('POST', '/store', body))) };
    const requirement = await asked('POST', path, 'hello', type);
    const uploaded = { ...type, 'x-payment': encoded(await version1(await newPayer(), requirement)) };
    const tickets = new Set<string>();
    for (const key of keys) {
      writeKey = key;
      tickets.add((await write('POST', '/store', body, stored)).body.ticket_id);
      tickets.add((await write('POST', path, 'hello', uploaded)).body.ticket_id);
    }
    expect([tickets.size, await total()]).toEqual([2, 2]);
  });

  test('what would be refused anyway is refused before it is paid', async () => {
    const body = { author: 'ada' };
    const precondition = { 'if-match': '"7"' };
    const requirement = await asked('PUT', documentPath('one'), body);
    const payment = { 'x-payment': encoded(await version1(await newPayer(), requirement)) };
    const refused = await write('PUT', documentPath('one'), body, { ...payment, ...precondition });
    expect([refused.status, await total()]).toEqual([412, 0]);
    // It is not spent.
    expect((await write('PUT', documentPath('one'), body, payment)).status).toBe(201);
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('a value that is taken is refused before it is paid, and a write that is refused later goes on', async () => {
    await index('by_slug', { field_name: 'slug', options: { unique: true } });
    const body = store([{ id: 'one', slug: 'taken' }]);
    const requirement = await asked('POST', '/store', body);
    const payment = await version1(await newPayer(), requirement);
    const header = { 'x-payment': encoded(payment) };
    await app.store('posts', [{ id: 'own', slug: 'taken' }]);
    const taken = { code: 'UNIQUE_VIOLATION', details: { 'data[0].slug': [expect.any(String)] } };
    const twice = store([{ slug: 'new' }, { slug: 'new' }]);
    for (const refused of [await write('POST', '/store', body), await write('POST', '/store', body, header)]) {
      expect([refused.status, refused.body]).toMatchObject([409, taken]);
    }
    expect((await write('POST', '/store', twice)).body).toMatchObject({
      details: { 'data[1].slug': expect.any(Array) as unknown },
    });
    const own = await write('PUT', documentPath('own'), { slug: 'taken' });
    expect(own.status).toBe(402);
    // The payer settles it although it cannot be done.
    const {
      resource: _,
      description: _1,
      mimeType: _2,
      ...issued
    } = requirement as Requirement & Record<string, unknown>;
    const settled = await send(granary.url, 'POST', '/x402/settle', {
      body: { x402Version: 1, paymentPayload: payment, paymentRequirements: issued },
    });
    expect(settled.body).toMatchObject({ success: true });
    expect((await write('POST', '/store', body, header)).status).toBe(409);
    await app.call('DELETE', documentPath('own'));
    expect((await write('POST', '/store', body, header)).status).toBe(202);
    expect((await app.list('posts', { find: { id: 'one' } })).body.total).toBe(1);
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('single documents are paid, also under conditions that hold no more when the answer comes again', async () => {
    await app.store('posts', [{ id: 'one', author: 'ada' }]);
    const headers = { 'if-match': '"1"' };
    const patch = { author: 'bob' };
    const requirement = await asked('PATCH', documentPath('one'), patch, headers);
    const payment = { ...headers, 'x-payment': encoded(await version1(await newPayer(), requirement)) };
    const first = await write('PATCH', documentPath('one'), patch, payment);
    expect([first.status, first.body]).toMatchObject([200, { author: 'bob' }]);
    const again = await write('PATCH', documentPath('one'), patch, payment);
    expect([again.status, again.text, again.headers.get('etag')]).toEqual([200, first.text, '"2"']);
    // To delete costs nothing.
    expect((await write('DELETE', documentPath('one'), undefined)).status).toBe(200);
  });

  test('an upload is paid before its body is read, and stored once', async () => {
    const path = `/api/apps/${app.appId}/blobs/posts`;
    const type = { 'content-type': 'text/plain' };
    const requirement = await asked('POST', path, 'hello', type);
    const streamed = await fetch(granary.url + path, {
      method: 'POST',
      headers: { ...type, 'x-app-key': writeKey },
      duplex: 'half',
      body: new ReadableStream({
        start(controller) {
          controller.enqueue(Buffer.from('hello'));
          controller.close();
        },
      }),
    });
    expect([streamed.status, await streamed.json()]).toEqual([
      411,
      expect.objectContaining({ code: 'LENGTH_REQUIRED' }),
    ]);
    const payment = { ...type, 'x-payment': encoded(await version1(await newPayer(), requirement)) };
    const first = await write('POST', path, 'hello', payment);
    expect([first.status, first.body['status']]).toEqual([202, 'Completed']);
    const again = await write('POST', path, 'hello', payment);
    expect([again.status, again.body.blob_id]).toEqual([202, first.body.blob_id]);
    const other = await write('POST', path, 'hallo', payment);
    expect([other.status, other.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    const longer = await write('POST', path, 'hello!', payment);
    expect([longer.status, longer.body.details.reason]).toEqual([402, 'quote_invalid']);
    expect((await send(granary.url, 'GET', `${path}/${first.body.blob_id}`)).text).toBe('hello');
    expect(await total()).toBe(1);
  });

  /** An agent key with so much money, and what its wallet has. */
  const newAgent = async (amount: number, limits: object = {}) => {
    const agentApp = await newApp(granary);
    const operator = { 'x-operator-key': operatorKey };
    await agentApp.call('POST', `/api/apps/${agentApp.appId}/faucet`, { amount }, operator);
    const wallet = async () =>
      (await agentApp.call<{ balance: number }>('GET', `/api/apps/${agentApp.appId}/wallet`)).body.balance;
    await eventually(async () => ((await wallet()) === amount ? true : undefined));
    const made = await agentApp.call<{ app_key: string }>('POST', `/api/apps/${agentApp.appId}/regenerate-key`, {
      name: 'agent',
      permissions: ['Pay'],
      pay_limits: { allowed_target_apps: [app.appId], ...limits },
    });
    return { key: made.body.app_key, wallet };
  };

  /** An upload of 5 bytes by an agent key, of which 3 have been sent. */
  const beginUpload = (key: string, signal?: AbortSignal) => {
    let body: ReadableStreamDefaultController<Buffer> | undefined;
    const answer = fetch(`${granary.url}/api/apps/${app.appId}/blobs/posts`, {
      method: 'POST',
      duplex: 'half',
      ...(signal && { signal }),
      headers: { 'content-type': 'text/plain', 'content-length': '5', 'x-app-key': writeKey, 'x-agent-key': key },
      body: new ReadableStream<Buffer>({
        start: (controller) => {
          body = controller;
          controller.enqueue(Buffer.from('hel'));
        },
      }),
    });
    return { answer, body: body! };
  };

  test('an upload that its client breaks off is not paid, and what was held for it is released at once', async () => {
    const { key, wallet } = await newAgent(premium);
    const client = new AbortController();
    const { answer } = beginUpload(key, client.signal);
    const failed = expect(answer).rejects.toThrow();
    await eventually(async () => ((await wallet()) === 0 ? true : undefined));
    client.abort();
    await failed;
    await eventually(async () => ((await wallet()) === premium ? true : undefined));
    expect([await total(), await earned()]).toEqual([0, 0]);
  });

  test('an agent key pays for an upload, however long that takes', async () => {
    const { key, wallet } = await newAgent(premium);
    const { answer, body } = beginUpload(key);
    await eventually(async () => ((await wallet()) === 0 ? true : undefined));
    const heldAtMs = Date.now();
    await eventually(() => Promise.resolve(Date.now() > heldAtMs + 2 * reservationMs));
    body.enqueue(Buffer.from('lo'));
    body.close();
    expect((await answer).status).toBe(202);
    expect([await total(), await wallet(), await earned()]).toEqual([1, 0, appShare]);
  });

  test('an agent key of another app pays from its wallet, and not for an answer that comes again', async () => {
    const { key, wallet } = await newAgent(2_500);
    const headers = { 'x-agent-key': key, 'idempotency-key': 'one' };
    const body = store([{ id: 'one', author: 'ada' }]);
    expect((await write('POST', '/store', body, headers)).status).toBe(202);
    const again = await write('POST', '/store', body, headers);
    expect([again.status, again.headers.get('idempotency-replayed'), await wallet()]).toEqual([202, 'true', 1_500]);
    const reused = await write('POST', '/store', store([{ id: 'other' }]), headers);
    expect([reused.status, await wallet()]).toEqual([422, 1_500]);
    const other = { ...headers, 'idempotency-key': 'two' };
    expect((await write('POST', '/store', store([{ id: 'two' }]), other)).status).toBe(202);
    const refused = await write('POST', '/store', store([{ id: 'three' }]), { ...other, 'idempotency-key': 'three' });
    expect([refused.status, refused.body]).toMatchObject([
      402,
      { code: 'PAYMENT_REFUSED', details: { reason: 'insufficient_funds' } },
    ]);
    expect([await total(), await earned()]).toEqual([2, 2 * appShare]);
  });

  test('repetitions of a write at once are paid once, with the last of the allowance of an agent key', async () => {
    const { key, wallet } = await newAgent(4 * premium, { spend_allowance: 2 * premium });
    const headers = { 'x-agent-key': key };
    const upload = () =>
      write('POST', `/api/apps/${app.appId}/blobs/posts`, 'hello', {
        'content-type': 'text/plain',
        'idempotency-key': 'upload',
        ...headers,
      });
    const requests = [
      () => write('POST', '/store', store([{ id: 'one', author: 'ada' }]), { 'idempotency-key': 'store', ...headers }),
      upload,
    ];
    for (const request of requests) {
      const before = await wallet();
      const answers = await Promise.all(Array.from({ length: 6 }, request));
      expect(answers.map(({ status }) => status)).toEqual(Array<number>(6).fill(202));
      expect(answers.filter((answer) => answer.headers.get('idempotency-replayed') !== 'true')).toHaveLength(1);
      expect(await wallet()).toBe(before - premium);
    }
  });

  test('what an agent key paid with the last of its allowance is answered again by its Idempotency-Key', async () => {
    const { key, wallet } = await newAgent(4 * premium, { spend_allowance: 3 * premium });
    const headers = (idempotency: string) => ({ 'x-agent-key': key, 'idempotency-key': idempotency });
    const upload = (name: string, content: string) =>
      write('POST', `/api/apps/${app.appId}/blobs/posts`, content, { 'content-type': 'text/plain', ...headers(name) });
    const document = { author: 'ada' };
    const requests = [
      () => write('POST', '/store', store([{ id: 'one', author: 'ada' }]), headers('one')),
      () => write('PUT', documentPath('two'), document, { ...headers('two'), 'if-none-match': '*' }),
      () => upload('three', 'hello'),
    ];
    for (const request of requests) {
      const before = await wallet();
      const first = await request();
      expect([first.status < 300, await wallet()]).toEqual([true, before - premium]);
    }
    const before = await height();
    for (const request of requests) {
      const again = await request();
      expect([again.status < 300, again.headers.get('idempotency-replayed')]).toEqual([true, 'true']);
    }
    expect((await upload('three', 'hallo')).body.code).toBe('IDEMPOTENCY_KEY_REUSED');
    // What is no repetition is neither done nor free.
    const refused = [
      await write('PUT', documentPath('four'), document, headers('four')),
      await write('POST', '/store', store([{ id: 'four' }]), headers('four')),
      await upload('four', 'hello'),
    ];
    const spent = { code: 'PAYMENT_REFUSED', details: { reason: 'allowance_spent' } };
    expect(refused.map(({ status, body }) => [status, body])).toMatchObject(refused.map(() => [402, spent]));
    expect([await height(), await wallet(), await earned()]).toEqual([before, premium, 3 * appShare]);
  });

  test('the values of a price index are what a write costs', async () => {
    await index('by_fee', { field_name: 'fee', index_type: 'price' });
    const data = [
      { id: 'one', fee: 700 },
      { id: 'two', fee: 800 },
    ];
    const { body } = await write('POST', '/store', store(data));
    expect(body.details).toMatchObject({ amount_utia: 1_500, pricing_model: 'field_value', fields: ['fee'] });
    const wrong = await write('POST', '/store', store([{ fee: -1 }]));
    expect([wrong.status, wrong.body.code]).toEqual([400, 'VALIDATION_FAILED']);
    const large = await write(
      'POST',
      '/store',
      store([{ fee: 1, text: 'x'.repeat(600_000) }, { text: 'x'.repeat(600_000) }]),
    );
    expect([large.status, large.body.code]).toEqual([400, 'LIMIT_EXCEEDED']);
  });

  test('pricing is a matter of Admin, and can be switched off', async () => {
    const path = `/api/apps/${app.appId}/collections/posts`;
    expect((await write('PUT', path, { write_pricing: 'off' })).status).toBe(403);
    expect((await app.call('GET', path)).body).toMatchObject({ write_pricing: 'on' });
    const batch = { operations: [{ operation: 'create', collection: 'posts', data: { id: 'a' } }] };
    const separately = await write('POST', `/api/apps/${app.appId}/batch`, batch);
    expect([separately.status, separately.body]).toMatchObject([200, [{ success: false, status: 402 }]]);
    const atomic = await write('POST', `/api/apps/${app.appId}/batch`, { ...batch, atomic: true });
    expect([atomic.status, atomic.body.code]).toEqual([402, 'PAYMENT_REQUIRED']);
    expect((await app.call('PUT', path, { write_pricing: 'off' })).status).toBe(200);
    expect((await write('POST', '/store', store([{ id: 'one', author: 'ada' }]))).status).toBe(202);
    expect((await write('POST', `/api/apps/${app.appId}/batch`, batch)).body).toMatchObject([{ success: true }]);
  });
});
