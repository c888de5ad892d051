import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { newApp, send, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';

describe('retention', () => {
  let granary: Granary;
  let database: Client;
  beforeAll(async () => {
    granary = await startGranary('direct', { settings: { data: { MAINTENANCE_EVERY_MS: '100' } } });
    database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
  });
  afterAll(async () => {
    await database.end();
    await granary.stop();
  });

  /** Makes documents as old as if they had been written then. */
  async function age(appId: string, collection: string, ids: string[], days: number): Promise<void> {
    const { rows } = await database.query<{ table: string }>(
      `select 'a_' || a.number || '.c_' || c.number as table from collection c join application a on a.number = c.app_number
       where a.app_id = $1 and c.name = $2 and c.deleted_at is null`,
      [appId, collection],
    );
    await database.query(
      `update ${rows[0]!.table} set updated_at = updated_at - $1 * interval '1 day' where id = any($2)`,
      [days, ids],
    );
  }

  test('expired documents are purged with their history and blobs; newer ones and the chain stay', async () => {
    const app = await newApp(granary);
    const upload = await app.call<{ blob_id: string; ticket_id: string }>(
      'POST',
      `/api/apps/${app.appId}/blobs/files`,
      'old bytes',
      {
        'content-type': 'text/plain',
      },
    );
    expect(upload.status).toBe(202);
    const old = upload.body.blob_id;
    const stored = await app.store('files', [
      { id: 'a', v: 1 },
      { id: 'b', v: 1 },
    ]);
    await app.store('files', [{ id: 'a', v: 2 }]);
    await age(app.appId, 'files', ['a', old], 8);
    expect((await send(granary.url, 'GET', `/api/apps/${app.appId}/blobs/files/${old}`)).text).toBe('old bytes');

    const set = await app.call('POST', `/api/apps/${app.appId}/collections/files/retention`, { retention_days: 7 });
    expect(set.status).toBe(200);
    const left = await eventually(async () => {
      const { body } = await app.list<{ id: string }>('files', { include_history: true });
      return body.total === 1 ? body.records : undefined;
    });
    expect(left).toEqual([{ id: 'b', v: 1 }]);
    await eventually(
      async () => (await send(granary.url, 'GET', `/api/apps/${app.appId}/blobs/files/${old}`)).status === 404,
    );
    const stats = await app.call('GET', `/api/apps/${app.appId}/collections/files/stats`);
    expect(stats.body).toMatchObject({ document_count: 1, version_count: 1, size_bytes: '{"id":"b","v":1}'.length });
    const cost = await eventually(async () => {
      const { body } = await app.call<{ collections: Array<Record<string, unknown>> }>(
        'GET',
        `/api/apps/${app.appId}/retention/cost`,
      );
      return body.collections[0]?.['size_bytes'] === '{"id":"b","v":1}'.length ? body.collections[0] : undefined;
    });
    expect(cost).toMatchObject({ collection: 'files', retention_days: 7, document_count: 1 });
    expect((await send(granary.url, 'GET', `/api/tasks/${stored.body.ticket_id}`)).body['status']).toBe('Completed');
  });

  test('a collection with the name of a deleted one costs only what it stores itself, blobs included', async () => {
    const app = await newApp(granary);
    const path = `/api/apps/${app.appId}`;
    const upload = (bytes: string) =>
      app.call('POST', `${path}/blobs/files`, bytes, { 'content-type': 'application/octet-stream' });
    const size = async () => {
      const { body } = await app.call<{ collections: Array<{ size_bytes: number }> }>('GET', `${path}/retention/cost`);
      return body.collections[0]?.size_bytes;
    };
    const documents = async () =>
      (await app.call<{ size_bytes: number }>('GET', `${path}/collections/files/stats`)).body.size_bytes;
    const sizeWith = (blobBytes: number) =>
      eventually(async () => (await size()) === (await documents()) + blobBytes || undefined);
    await upload('first'.repeat(200));
    await sizeWith(1_000);
    expect((await app.call('DELETE', `${path}/collections/files`, { force: true })).status).toBe(200);
    await upload('second');
    await sizeWith('second'.length);
    const numbers = async () => {
      const own = new Client({ connectionString: granary.databaseUrls.blobs });
      await own.connect();
      const { rows } = await own.query<{ payload: string }>('select payload from outbox where key = $1 order by pos', [
        app.appId,
      ]);
      await own.end();
      return rows.map(({ payload }) => (JSON.parse(payload) as Record<string, unknown>)['collection_number']);
    };
    const { rows } = await database.query<{ number: string }>(
      `select c.number from collection c join application a on a.number = c.app_number
       where a.app_id = $1 order by c.number`,
      [app.appId],
    );
    expect(rows.length).toBe(2);
    expect(new Set(await numbers())).toEqual(new Set(rows.map(({ number }) => number)));
  });
});
