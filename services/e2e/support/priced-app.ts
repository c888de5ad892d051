import { newApp, send, type Answer, type Granary, type TestApp } from './granary';

/** Whether a request is to be repeated, for no block has its payment yet. */
export function isPaymentPending({ status, body }: Pick<Answer<object>, 'status' | 'body'>): boolean {
  const told = body as { status?: unknown; code?: unknown };
  return status === 202 ? told.status === 'PaymentConfirming' : told.code === 'PAYMENT_PENDING';
}

/** An app with a film, of which a read costs `price`. */
export async function pricedFilms(granary: Pick<Granary, 'url'>, price: number): Promise<TestApp> {
  const app = await newApp(granary);
  await app.store('films', [{ id: 'one', title: 'Alien' }]);
  const read_price_config = { pricing_model: 'per_access', price_per_access_utia: price };
  const collection = `/api/apps/${app.appId}/collections/films`;
  expect((await app.call('PUT', collection, { read_price_config })).status).toBe(200);
  return app;
}

/** With a key that may write, to a collection where that costs `price`. */
export async function pricedNotes<T>(granary: Pick<Granary, 'url'>, app: TestApp, price: number) {
  const collection = { name: 'notes', write_pricing: 'on' };
  expect((await app.call('POST', `/api/apps/${app.appId}/collections`, collection)).status).toBe(201);
  const index = { name: 'by_text', collection: 'notes', field_name: 'text', index_type: 'btree' };
  const price_config = { pricing_model: 'per_access', price_per_access_utia: price };
  expect((await app.call('POST', `/api/apps/${app.appId}/indexes`, { ...index, price_config })).status).toBe(201);
  const writer = { name: 'writer', permissions: ['Write'] };
  const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, writer);
  const key = made.body.app_key;
  const body = { root: `${app.appId}::notes`, data: [{ text: 'paid' }] };
  const store = (headers: Record<string, string> = {}) =>
    send<T>(granary.url, 'POST', '/store', { key, body, headers });
  return { key, body, store };
}
