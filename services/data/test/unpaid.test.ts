import { serviceDatabase } from '@granary/testing/service-database';
import { dataSchema } from '../src/service';
import { newApp, startDataService, storeRequest, type App, type DataService } from './support/data-service';

let service: DataService;
let app: App;
beforeAll(async () => {
  const { url } = await serviceDatabase(dataSchema);
  service = await startDataService(url);
  app = await newApp(service);
  const { appId } = app;
  await service.methods.createCollection({
    appId,
    name: 'films',
    schemaJson: '',
    readAccess: 'public',
    readPriceConfig: { pricingModel: 'per_access', pricePerAccessUtia: '500', appOwnerPercentage: 0.25 },
    writePricing: true,
  });
  await service.methods.createIndex({
    appId,
    appNumber: app.number.toString(),
    name: 'by_title',
    collection: 'films',
    fieldName: 'title',
    fields: [],
    indexType: 'string',
    unique: true,
    ticketId: '',
  });
});
afterAll(() => service.stop());

const paymentRequired = { code: 'FAILED_PRECONDITION', reason: 'PAYMENT_REQUIRED' };
const read = (more: object) =>
  service.methods.readCollection({ appId: app.appId, name: 'films', parameters: [], mayReadPrivate: false, ...more });
const change = (id: string, body: object, more: object) =>
  service.methods.changeDocument({
    appId: app.appId,
    appNumber: app.number.toString(),
    ticketId: storeRequest(app, 'films', []).ticketId,
    collection: 'films',
    id,
    change: 'put',
    body: Buffer.from(JSON.stringify(body)),
    idempotency: storeRequest(app, 'films', []).idempotency,
    ...more,
  });
const head = async () => {
  const { json } = await service.methods.listCommits({
    appId: app.appId,
    from: '1',
    limit: 1,
    cursor: '',
    texts: false,
  });
  return (JSON.parse(json.toString()) as { head: { celestia_height: number } }).head.celestia_height;
};

test('a read that costs more than is paid is answered with its price, and with an error to callers that take none', async () => {
  const { price, json, etag } = await read({ acceptsPrice: true });
  expect(price).toEqual({ amountUtia: '500', pricingModel: 'per_access', fields: ['*'], appSharePpm: 250_000 });
  expect([json.length, etag]).toEqual([0, '']);
  expect((await read({ acceptsPrice: true, paidUtia: '499' })).price?.amountUtia).toBe('500');
  const paid = await read({ acceptsPrice: true, paidUtia: '500' });
  expect(paid.price).toBeUndefined();
  expect(JSON.parse(paid.json.toString())).toMatchObject({ records: [] });
  await expect(read({})).rejects.toMatchObject({
    ...paymentRequired,
    details: { amount_utia: 500, pricing_model: 'per_access', fields: ['*'], app_share_ppm: 250_000 },
  });
});

test.each([
  ['stored', (more: object) => service.methods.store(storeRequest(app, 'films', [{ id: 'a', title: 'Alien' }], more))],
  ['changed', (more: object) => change('b', { title: 'Brazil' }, more)],
])('what would be %s, but for its price, is not, and is answered with what the price depends on', async (_, write) => {
  const before = await head();
  const { unpaid, ticketId } = await write({ acceptsPrice: true });
  expect(unpaid).toMatchObject({ isPriced: true, collection: 'films', indexedFields: ['title'], prices: [] });
  expect(Number(unpaid?.sizeBytes)).toBeGreaterThan(10);
  expect(ticketId).toBe('');
  await expect(write({})).rejects.toMatchObject(paymentRequired);
  expect(await head()).toBe(before);
  const paid = await write({ acceptsPrice: true, isPaid: true });
  expect(paid.unpaid).toBeUndefined();
  expect(paid.ticketId).not.toBe('');
});

test('a price is not told of a write that would be refused anyway', async () => {
  await service.methods.store(storeRequest(app, 'films', [{ id: 'c', title: 'Charade' }], { isPaid: true }));
  const taken = { acceptsPrice: true };
  const twice = service.methods.store(storeRequest(app, 'films', [{ id: 'd', title: 'Charade' }], taken));
  await expect(twice).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
  const changed = change('d', { title: 'Charade' }, taken);
  await expect(changed).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
  const empty = service.methods.store(storeRequest(app, 'films', [], taken));
  await expect(empty).rejects.toMatchObject({ reason: 'VALIDATION_FAILED' });
});
