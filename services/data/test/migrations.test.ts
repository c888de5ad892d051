import { createHash } from 'node:crypto';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate, readMigrations } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/testing/database';
import { parseTicket } from '@granary/shared/ids';
import { eventually } from '@granary/testing/eventually';
import { createCommitsTable } from '../src/chain/commit-log';
import { log, newApp, startDataService, storeRequest } from './support/data-service';

const migrations = join(__dirname, '..', 'migrations');
/** The number of the last that changed the tables of apps, before a release had to run beside its successor. */
const lastOfTables = 17;

describe('migrations of what is there already', () => {
  let pool: Pool;
  let url: string;
  let folder: string;
  beforeEach(async () => {
    ({ url } = await testDatabase());
    pool = createPool({ url, size: 2, applicationName: 'test', log });
    folder = await mkdtemp(join(tmpdir(), 'granary-migrations-'));
  });
  afterEach(async () => {
    await pool.end();
    await rm(folder, { recursive: true, force: true });
  });

  const migrateUpTo = async (last: string) => {
    await cp(migrations, folder, {
      recursive: true,
      filter: (file) => file === migrations || file <= join(migrations, `${last}~`),
    });
    await migrate(pool, folder);
  };

  test('documents and heads that have heights have the same ordinals and commits none, and commits get the hashes of texts', async () => {
    await migrateUpTo('0004');
    await pool.query(`
      insert into application (app_id, name, created_at, updated_at) values ('a', 'A', now(), now());
      insert into head (app_number, height, hash) values (1, 2, '');
      create schema a_1;
      create table a_1.commits (height bigint primary key, ticket_id text, operation text not null, ids text[] not null);
      insert into a_1.commits values (1, 't1', 'store', '{x}'), (2, 't2', 'store', '{x}'),
        (3, 't3', 'upload', '{b}'), (4, null, 'upload', '{b}'), (5, 't5', 'store', '{gone}');
      create table a_1.c_7 (id text primary key, body text not null, updated_at timestamptz, height bigint not null, place int not null);
      insert into a_1.c_7 values ('x', '{"id":"x","n":2}', now(), 2, 0),
        ('b', '{"id":"b","sha256":"${'0f'.repeat(32)}"}', now(), 4, 0);
      create table a_1.h_7 (like a_1.c_7);
      insert into a_1.h_7 values ('x', '{"id":"x"}', now(), 1, 0);
      create table a_1.v_3 (pos bigint primary key, body text)`);
    await migrate(pool, migrations);
    const found = await pool.query(`
      select 'head' as of, height, ordinal from head union all
      select 'commits', height, ordinal from a_1.commits where height < 3 union all
      select id, null, ordinal from a_1.c_7 where id = 'x' union all
      select id, null, ordinal from a_1.h_7 order by 1, 2, 3`);
    expect(found.rows).toEqual([
      { of: 'commits', height: 1n, ordinal: null },
      { of: 'commits', height: 2n, ordinal: null },
      { of: 'head', height: 2n, ordinal: 2n },
      { of: 'x', height: null, ordinal: 1n },
      { of: 'x', height: null, ordinal: 2n },
    ]);
    const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
    const { rows: hashes } = await pool.query<{ hashes: string | null }>(
      `select encode(hashes, 'hex') as hashes from a_1.commits order by height`,
    );
    expect(hashes.map((commit) => commit.hashes)).toEqual([
      sha256('{"id":"x"}'),
      sha256('{"id":"x","n":2}'),
      '0f'.repeat(32),
      sha256(`{"id":"b","sha256":"${'0f'.repeat(32)}"}`),
      null,
    ]);
  });

  test('indexes of jsonb keys get ordered ones and are built again; what is unique stays unique meanwhile', async () => {
    await migrateUpTo('0007');
    const schema = JSON.stringify({ fields: { at: { type: 'date' } } });
    await pool.query(`
      insert into application (app_id, name, created_at, updated_at) values ('a', 'A', now(), now());
      insert into head (app_number, hash, catalog_revision) values (1, decode(repeat('00', 32), 'hex'), 7);
      insert into collection (app_number, name, schema_text, read_access, row_count, created_at, updated_at)
        values (1, 'films', '${schema}', 'public', 4, now(), now());
      insert into document_index (app_number, collection_number, name, field_name, fields, index_type, is_unique, status, created_at)
        values (1, 1, 'n', 'n', null, 'number', false, 'ready', now()),
          (1, 1, 'at', 'at', null, 'btree', false, 'ready', now()),
          (1, 1, 'both', 'n', '{n,at}', 'composite', false, 'ready', now()),
          (1, 1, 'email', 'email', null, 'btree', true, 'ready', now()),
          (1, 1, 'broken', 'n', null, 'btree', true, 'failed', now());
      create schema a_1`);
    const connection = await pool.connect();
    await createCommitsTable(connection, 1n);
    connection.release();
    const columns = `id text collate "C" primary key, body text not null, version bigint not null, deleted boolean not null,
      created_at timestamptz not null, updated_at timestamptz not null, ordinal bigint not null, place int not null`;
    await pool.query(`
      create table a_1.c_1 (${columns}, k_1 jsonb, k_2 jsonb, k_3_1 jsonb, k_3_2 jsonb, k_4 jsonb, u_4 text collate "C",
        k_5 jsonb, u_5 text collate "C");
      create table a_1.h_1 (like a_1.c_1);
      create index i_1 on a_1.c_1 (k_1, id);
      create index i_3 on a_1.c_1 (k_3_1, k_3_2, id);
      create index r_3 on a_1.c_1 (k_3_1, id) where k_3_1 is null or k_3_2 is null;
      create unique index q_4 on a_1.c_1 (u_4);
      alter table a_1.c_1 add constraint q_4 unique using index q_4 deferrable initially immediate`);
    const bodies = [
      '{"id":"1","n":2,"at":"2024-01-01T00:00:00Z","email":"x"}',
      '{"id":"2","n":-1.50,"at":"2023-12-31T23:00:00-02:00","email":"y"}',
      '{"id":"3","n":null,"at":"2024-01-01T00:00:00Z"}',
      '{"id":"4","n":2,"at":"2020-01-01T00:00:00Z"}',
    ];
    await pool.query(
      `insert into a_1.c_1 (id, body, version, deleted, created_at, updated_at, ordinal, place, u_4)
       select body::jsonb ->> 'id', body, 1, false, now(), now(), 0, 0, 's:' || (body::jsonb ->> 'email') from unnest($1::text[]) body`,
      [bodies],
    );

    const copy = await startDataService(url);
    try {
      const duplicate = storeRequest({ appId: 'a', number: 1n }, 'films', [{ id: '5', email: 'x' }]);
      await expect(copy.methods.store(duplicate)).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
      const { rows: jobs } = await pool.query<{ ticket_id: string }>(
        `select ticket_id from job where kind = 'index.build' order by rank`,
      );
      expect(jobs).toHaveLength(4);
      for (const { ticket_id: ticketId } of jobs) {
        expect(parseTicket(ticketId)).toEqual({ kind: 'j', appNumber: 1n });
        await eventually(async () => (await copy.methods.getJob({ ticketId })).status === 'Completed');
      }
      const { indexes } = await copy.methods.listIndexes({ appId: 'a', collection: 'films', limit: 10, cursor: '' });
      expect(indexes.map(({ name, status }) => `${name} ${status}`)).toEqual([
        'n ready',
        'at ready',
        'both ready',
        'email ready',
        'broken failed',
      ]);
      const list = async (body: object) => {
        const text = Buffer.from(JSON.stringify({ root: 'a::films', ...body }));
        const { json } = await copy.methods.listDocuments({ appId: 'a', body: text });
        return (JSON.parse(json.toString()) as { records: Array<{ id: string }> }).records.map(({ id }) => id);
      };
      expect(await list({ sort: ['n', 'at'] })).toEqual(['2', '4', '1', '3']);
      expect(await list({ sort: ['-n', '-at'] })).toEqual(['1', '4', '2', '3']);
      expect(await list({ find: { at: '2024-01-01T01:00:00+01:00' }, sort: ['-at'] })).toEqual(['3', '1']);
    } finally {
      await copy.stop();
    }
    const { rows: found } = await pool.query<{ name: string }>(`
      select attname as name from pg_attribute where attrelid = 'a_1.c_1'::regclass and attnum > 8 and not attisdropped
      union all select path || ' ' || is_date || ' f_' || number from indexed_field order by 1`);
    const fieldNames = found.map(({ name }) => name).filter((name) => name.includes(' '));
    expect(fieldNames.map((name) => name.split(' f_')[0])).toEqual(['at true', 'email false', 'n false']);
    const keyColumns = fieldNames.map((name) => name.split(' ')[2]!);
    expect(found.map(({ name }) => name).filter((name) => !name.includes(' '))).toEqual(
      [...keyColumns, 'u_4', 'u_5'].sort(),
    );
  });

  test('texts that have become instants get their keys by a job, with the indexes and live views over them', async () => {
    const before = await startDataService(url);
    try {
      const app = await newApp(before);
      const index = {
        appId: app.appId,
        appNumber: app.number.toString(),
        indexType: 'date',
        unique: true,
        ticketId: '',
      };
      for (const [name, fieldName] of [
        ['of_at', 'at'],
        ['of_due', 'due'],
      ] as const) {
        await before.methods.createIndex({ ...index, name, collection: 'films', fieldName, fields: [] });
      }
      const instants = ['2024-01-01T00:00:00.1234567Z', '2024-01-01T00:00:00.5Z', '2024-01-01', 'soon'];
      const documents = instants.map((at, n) => ({ id: `d${n}`, at, due: `2024-01-0${n + 1}T00:00:00Z` }));
      await before.methods.store(storeRequest(app, 'films', documents));
      const view = await before.methods.createView({
        appId: app.appId,
        appNumber: app.number.toString(),
        name: 'latest',
        sourceCollections: ['films'],
        ticketId: '',
        refreshMode: 'live',
        variablesJson: Buffer.alloc(0),
        readAccess: '',
        queryJson: Buffer.from(JSON.stringify({ aggregate: { first: { $min: 'at' } } })),
      });
      await eventually(async () => (await before.methods.getJob({ ticketId: view.ticketId })).status === 'Completed');
      const { rows } = await pool.query<{ name: string }>(
        `select 'f_' || f.number as name from indexed_field f where f.path = 'at' and f.is_date`,
      );
      const { rows: uniques } = await pool.query<{ name: string }>(
        `select 'u_' || number as name from document_index where name = 'of_at'`,
      );
      await pool.query(
        `update a_${app.number}.c_1 set ${rows[0]!.name} = string_key(body::jsonb ->> 'at'),
           ${uniques[0]!.name} = 's:' || (body::jsonb ->> 'at') where id in ('d0', 'd2')`,
      );
      const find = async (at: object | string) => {
        const text = Buffer.from(JSON.stringify({ root: `${app.appId}::films`, find: { at }, select: ['id'] }));
        const { json } = await before.methods.listDocuments({ appId: app.appId, body: text });
        return (JSON.parse(json.toString()) as { records: Array<{ id: string }> }).records.map(({ id }) => id);
      };
      expect(await find({ gte: '2024-01-01T00:00:00Z' })).toEqual(['d1']);

      const { text } = (await readMigrations(migrations)).find(({ name }) => name.startsWith('0023'))!;
      await pool.query(text);
      const { rows: jobs } = await pool.query<{ ticket_id: string; waits: boolean }>(
        `update job set not_before = null where kind = 'instants.renew'
         returning ticket_id, (select j.not_before > now() + interval '14 minutes' from job j where j.ticket_id = job.ticket_id) as waits`,
      );
      expect(jobs).toMatchObject([{ waits: true }]);
      const ticketId = jobs[0]!.ticket_id;
      expect(parseTicket(ticketId)).toEqual({ kind: 'j', appNumber: app.number });
      const done = await eventually(async () => {
        const job = await before.methods.getJob({ ticketId });
        return job.status === 'Completed' && job;
      });
      expect(JSON.parse(done.resultJson)).toEqual({ collections: ['films'] });
      await eventually(async () => {
        const { rows: open } = await pool.query(`select from job where status in ('Pending', 'StoringData')`);
        return open.length === 0;
      });
      const { indexes } = await before.methods.listIndexes({ appId: app.appId, collection: 'films' });
      expect(indexes.map(({ status }) => status)).toEqual(['ready', 'ready']);
      expect(await find({ gte: '2024-01-01T00:00:00Z' })).toEqual(['d0', 'd1', 'd2']);
      expect(await find('2024-01-01T01:00:00.123456+01:00')).toEqual(['d0']);
      const same = storeRequest(app, 'films', [{ id: 'd9', at: '2024-01-01T00:00:00.123456Z' }]);
      await expect(before.methods.store(same)).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
      const { rows: kinds } = await pool.query<{ kind: string; jobs: bigint }>(
        'select kind, count(*) as jobs from job group by kind order by kind',
      );
      // Only the index over what was stale is built again.
      expect(kinds.map(({ kind, jobs: count }) => `${kind} ${count}`)).toEqual([
        'index.build 1',
        'instants.renew 1',
        'view.refresh 2',
      ]);
    } finally {
      await before.stop();
    }
  });

  test('none touches the tables of apps: what changes them does so app by app, in jobs', async () => {
    await migrateUpTo(String(lastOfTables).padStart(4, '0'));
    await pool.query(`
      insert into application (app_id, name, created_at, updated_at) values ('a', 'A', now(), now());
      insert into head (app_number, hash, catalog_revision) values (1, decode(repeat('00', 32), 'hex'), 7);
      insert into collection (app_number, name, read_access, created_at, updated_at) values (1, 'films', 'public', now(), now());
      create schema a_1;
      create table a_1.c_1 (id text primary key, body text not null);
      create table a_1.h_1 (like a_1.c_1);
      create table a_1.v_1 (like a_1.c_1)`);
    const writer = await pool.connect();
    try {
      await createCommitsTable(writer, 1n);
      await writer.query('begin');
      await writer.query('lock table a_1.commits, a_1.c_1, a_1.h_1, a_1.v_1 in access exclusive mode');
      // A migration that read or changed one of them would wait for its lock.
      for (const { name, text } of (await readMigrations(migrations)).slice(lastOfTables)) {
        const touches = pool.query(`set local lock_timeout = '5s'; ${text}`);
        expect([name, await touches.then(() => 'done', String)]).toEqual([name, 'done']);
      }
    } finally {
      await writer.query('rollback');
      writer.release();
    }
  });
});
