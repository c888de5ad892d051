import { newTicket } from '@granary/shared/ids';
import { serviceDatabase } from '@granary/testing/service-database';
import { dataSchema } from '../src/service';
import { newApp, noIdempotency, storeRequest, type DataService } from './support/data-service';
import { fields, startCopy } from './support/write-fixture';

describe('a call of so many bytes that it is read in slices', () => {
  let copy: DataService;
  beforeAll(async () => {
    const { url } = await serviceDatabase(dataSchema);
    copy = await startCopy(url);
  });
  afterAll(() => copy.stop());

  const documents = (count: number, wrongAt?: number) =>
    Array.from({ length: count }, (_, n) => ({ id: `d${n}`, n: n === wrongAt ? 'text' : n, text: 'x'.repeat(300) }));

  test('is stored wherever its root stands, refused by the place of what is wrong, and answered again by its ticket', async () => {
    const app = await newApp(copy);
    await copy.methods.createCollection({
      appId: app.appId,
      name: 'things',
      readAccess: 'public',
      schemaJson: fields({ n: { type: 'number' } }),
    });
    const count = async () =>
      (await copy.methods.getCollection({ appId: app.appId, collection: 'things' })).documentCount;

    const first = storeRequest(app, 'things', documents(1_000));
    const answer = await copy.methods.store(first);
    expect(await count()).toBe('1000');
    const rootLast = `{"data":${JSON.stringify(documents(1_500))},"root":"${app.appId}::things"}`;
    await copy.methods.store({
      appId: app.appId,
      appNumber: app.number.toString(),
      ticketId: newTicket('c', app.number),
      body: Buffer.from(rootLast),
      idempotency: noIdempotency,
    });
    expect(await count()).toBe('1500');

    await expect(copy.methods.store(storeRequest(app, 'things', documents(2_000, 1_700)))).rejects.toMatchObject({
      reason: 'SCHEMA_VIOLATION',
      details: { 'data[1700].n': [expect.any(String)] },
    });
    await expect(
      copy.methods.store(
        storeRequest(
          app,
          'things',
          `[${documents(2_000)
            .map((one) => JSON.stringify(one))
            .join()},]`,
        ),
      ),
    ).rejects.toMatchObject({ reason: 'MALFORMED_JSON' });
    expect(await count()).toBe('1500');

    await copy.methods.updateCollection({
      appId: app.appId,
      name: 'things',
      schemaJson: fields({ n: { type: 'number' }, more: { type: 'string', required: true } }),
    });
    expect(await copy.methods.store(first)).toEqual(answer);
    await expect(copy.methods.store(storeRequest(app, 'things', documents(1_000)))).rejects.toMatchObject({
      reason: 'SCHEMA_VIOLATION',
    });
  });
});
