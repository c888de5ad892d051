import { Client } from 'pg';
import { borrowGranary, newApp, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('a build of an index that fails each time (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let database: Client;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
  });
  afterAll(async () => {
    await database.end();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    const films = Array.from({ length: 1_200 }, (_, n) => ({ id: `d${n}`, year: n, title: `Film ${n}` }));
    await app.store('films', films);
  });

  /** Lets the service create indexes for the app, or not. */
  const permit = async (how: 'grant create' | 'revoke create') => {
    const { rows } = await database.query<{ schema: string }>(
      `select 'a_' || number as schema from application where app_id = $1`,
      [app.appId],
    );
    await database.query(`${how} on schema ${rows[0]!.schema} ${how.startsWith('grant') ? 'to' : 'from'} current_user`);
  };
  /** The columns of the table of films, and its indexes. */
  const tableOf = async () => {
    const { rows } = await database.query<{ columns: string[]; indexes: number }>(
      `select (select array_agg(attname::text order by attnum) from pg_attribute
               where attrelid = t.oid and attnum > 0 and not attisdropped) as columns,
              (select count(*)::int from pg_index where indrelid = t.oid) as indexes
       from collection c join application a on a.number = c.app_number
         cross join lateral (select to_regclass(format('a_%s.c_%s', c.app_number, c.number)) as oid) t
       where a.app_id = $1`,
      [app.appId],
    );
    return rows[0]!;
  };

  test.each([
    ['of one field', { field_name: 'year', index_type: 'number' }, 'year=9000'],
    ['that is unique', { field_name: 'year', index_type: 'number', unique_constraint: true }, 'year=9000'],
    ['of words', { field_name: 'title', index_type: 'fulltext' }, 'title.$search=seven'],
  ])('%s ends as failed with the reason, takes its columns away, and can be made again', async (_, index, filter) => {
    const definition = { name: 'by', collection: 'films', ...index };
    const before = await tableOf();
    const path = `/api/apps/${app.appId}`;
    await permit('revoke create');
    let ticket: string;
    try {
      const made = await app.call<{ ticket_id: string }>('POST', `${path}/indexes`, definition);
      expect(made.status).toBe(202);
      ticket = made.body.ticket_id;
      const { status } = (await app.ended(ticket)) as { status: { Failed: { error: string } } };
      expect(status.Failed.error).toMatch(/could not be built: several attempts .* code 42501$/);
      const shown = await app.call('GET', `${path}/collections/films/indexes/by`);
      expect(shown.body).toMatchObject({ status: 'failed', error: status.Failed.error });
      const { body } = await app.call('GET', `${path}/collections/films/indexes/by/status`);
      expect(body).toMatchObject({ status: 'failed', building: false, error: status.Failed.error });
    } finally {
      await permit('grant create');
    }
    expect(await tableOf()).toEqual(before);
    await app.store('films', [{ id: 'later', year: 9_000, title: 'Seven' }]);

    const again = await app.call<{ ticket_id: string }>('POST', `${path}/indexes`, definition);
    expect(again.status).toBe(202);
    expect((await app.ended(again.body.ticket_id)).status).toBe('Completed');
    const found = await app.call<{ total: number }>('GET', `${path}/collections/films/data?${filter}`);
    expect(found.body.total).toBe(1);
    // The failed task stays as it was.
    expect((await app.call('GET', `/api/tasks/${ticket}`)).body['status']).toHaveProperty('Failed');
  });
});
