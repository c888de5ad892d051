import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newTicket } from '@granary/shared/ids';
import { serviceDatabase } from '@granary/testing/service-database';
import { dataSchema } from '../src/service';
import { newApp, noIdempotency, startDataService, storeRequest, type DataService } from './support/data-service';

describe('two copies of the service with encrypted fields', () => {
  let directory: string;
  let one: DataService;
  let other: DataService;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'granary-copies-'));
    const { url } = await serviceDatabase(dataSchema);
    const settings = { ENCRYPTION_KEY_FILE: join(directory, 'seed'), ENCRYPTION_KEY_FILE_CREATE: 'true' };
    one = await startDataService(url, settings);
    other = await startDataService(url, settings);
  });
  afterAll(async () => {
    await one.stop();
    await other.stop();
    await rm(directory, { recursive: true, force: true });
  });

  test('one reads, changes and repeats what the other has just encrypted by another key', async () => {
    const app = await newApp(one);
    const place = { appId: app.appId, appNumber: app.number.toString(), collection: 'people' };
    await one.methods.createIndex({
      ...place,
      name: 'by_email',
      fieldName: 'email',
      fields: [],
      indexType: 'encrypted',
      unique: false,
      ticketId: '',
      isPaid: true,
    });
    await one.methods.store(storeRequest(app, 'people', [{ id: 'a', email: 'x' }]));
    const change = (service: DataService, id: string, email: string, key = '') =>
      service.methods.changeDocument({
        ...place,
        id,
        change: 'put',
        body: Buffer.from(JSON.stringify({ id, email })),
        ticketId: newTicket('c', app.number),
        mayReadPrivate: true,
        idempotency: key === '' ? noIdempotency : { ...noIdempotency, caller: 'test', method: 'PUT', path: id, key },
      });
    for (let round = 0; round < 5; round += 1) {
      const read = () => other.methods.getDocument({ appId: app.appId, collection: 'people', id: 'a' });
      // The other copy caches the collection, with the keys that there are.
      await change(other, 'b', `before ${round}`);
      await read();
      await one.methods.rotateDataKey({ appId: app.appId, ticketId: newTicket('j', app.number) });
      const email = `round ${round}`;
      const text = JSON.stringify({ id: 'a', email });
      const made = await change(one, 'a', email, `key ${round}`);
      const repeated = await change(other, 'a', email, `key ${round}`);
      expect([made.json.toString(), repeated.json.toString()]).toEqual([text, text]);
      expect(repeated.version).toBe(made.version);
      expect((await read()).json.toString()).toBe(text);
      expect((await change(other, 'b', email)).json.toString()).toBe(JSON.stringify({ id: 'b', email }));
    }
  });
});
