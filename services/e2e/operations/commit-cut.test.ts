import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { startPostgresProxy, type CommitFate, type PostgresProxy } from '@granary/testing/postgres-proxy';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { newApp, type Granary, type StoreAnswer } from '../support/granary';
import { startGranary } from '../support/own-granary';

const cutsWanted = 100;
const writers = 6;

/** Which commits are cut: only those of writes, and no more than wanted, so that the last writes come through. */
class Knife {
  cuts = 0;
  armed = false;
  private seen = 0;

  fate(): CommitFate {
    this.seen += 1;
    if (!this.armed || this.cuts >= cutsWanted || this.seen % 2 === 0) return 'pass';
    this.cuts += 1;
    return this.cuts % 2 === 0 ? 'cut before' : 'cut after';
  }
}

describe('a connection to Postgres that breaks at COMMIT', () => {
  const knife = new Knife();
  let proxy: PostgresProxy;
  let granary: Granary;
  beforeAll(async () => {
    proxy = await startPostgresProxy((await testDatabase()).url, () => knife.fate());
    granary = await startGranary('direct', { databaseUrls: { data: proxy.url } });
  });
  afterAll(async () => {
    await granary.stop();
    await proxy.stop();
  });

  test('after 100 broken connections under writers no acknowledged write is lost or duplicated, and the heights have no gap', async () => {
    const app = await newApp(granary);
    await app.store('films', [{ id: 'first' }]);
    knife.armed = true;
    const acknowledged: Array<{ id: string; height: number }> = [];
    const write = async (writer: number) => {
      for (let n = 0; knife.cuts < cutsWanted || n === 0; n++) {
        const id = `${writer}-${n}`;
        const answer = await app.call<StoreAnswer>('POST', '/store', {
          root: `${app.appId}::films`,
          data: [{ id, n }],
        });
        expect([202, 503]).toContain(answer.status);
        if (answer.status === 202) acknowledged.push({ id, height: answer.body.results[0]!.celestia_height });
      }
    };
    await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
    expect(knife.cuts).toBe(cutsWanted);
    knife.armed = false;

    const versions = await app.list<{ id: string }>('films', { include_history: true, limit: 10_000 });
    const ids = versions.body.records.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids).toEqual(expect.arrayContaining(acknowledged.map(({ id }) => id)));
    const heights = acknowledged.map(({ height }) => height);
    expect(new Set(heights).size).toBe(heights.length);
    // A write after all of it has the height of all that was written before, so none was skipped or used twice.
    const last = (await app.store('films', [{ id: 'last' }])).body.results[0]!.celestia_height;
    expect(last).toBe(ids.length + 1);
  });
});

test('a write whose COMMIT got no answer is not reported as failed while its ticket cannot be looked up', async () => {
  const { url } = await testDatabase();
  const admin = new Client({ connectionString: url });
  await admin.connect();
  let isArmed = false;
  const proxy = await startPostgresProxy(url, () => {
    if (!isArmed) return 'pass';
    isArmed = false;
    return 'cut after';
  });
  const granary = await startGranary('direct', { databaseUrls: { data: proxy.url } });
  try {
    const app = await newApp(granary);
    await app.store('films', [{ id: 'first' }]);
    // With the COMMIT of the next write the table goes that every attempt begins with, and what stands there fails.
    const { rows } = await admin.query<{ number: string }>('select number from application');
    await admin.query(`
      create function take_away() returns trigger language plpgsql as
        $$ begin
          alter table head rename to head_away;
          create view head as select app_number, height / 0 as height, hash, catalog_revision from head_away;
          return null;
        end $$;
      create constraint trigger away after insert on a_${rows[0]!.number}.commits
        deferrable initially deferred for each row execute function take_away()`);
    isArmed = true;
    const written = app.store('films', [{ id: 'second' }]);
    await eventually(async () => {
      const { rowCount } = await admin.query(`select 1 where to_regclass('head_away') is not null`);
      return rowCount === 1;
    });
    await delay(300);
    await admin.query('drop view head; alter table head_away rename to head');
    expect(await written).toMatchObject({ status: 202, body: { results: [{ id: 'second' }] } });
    const { body } = await app.list<{ id: string }>('films', { include_history: true });
    expect(body.records.map(({ id }) => id)).toEqual(['first', 'second']);
  } finally {
    await granary.stop();
    await proxy.stop();
    await admin.end();
  }
});
