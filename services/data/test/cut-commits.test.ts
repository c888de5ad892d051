import type { Pool } from '@granary/shared/postgres/pool';
import { startPostgresProxy } from '@granary/testing/postgres-proxy';
import { eventually } from '@granary/testing/eventually';
import { AfterPlan } from '../src/commit/after-plan';
import { liveViewRows } from '../src/views/live/live-rows';
import { purgeExpired } from '../src/usage/retention-purge';
import { checkChain } from './support/check-chain';
import { log, newApp, storeRequest, type App, type DataService } from './support/data-service';
import { startHoldingProxy } from './support/holding-proxy';
import { collectionNumber, fields, startCopy, startTwoCopies } from './support/write-fixture';

describe('COMMITs without an answer', () => {
  let url: string;
  let pool: Pool;
  let one: DataService;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ url, pool, one, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
  });

  const createCollection = (name: string, rules: object) =>
    one.methods.createCollection({ appId: app.appId, name, schemaJson: fields(rules), readAccess: 'public' });
  const store = (collection: string, data: object[], copy = one) =>
    copy.methods.store(storeRequest(app, collection, data));

  test('two replicas whose commits are cut lose and duplicate nothing', async () => {
    let armed = false;
    let seen = 0;
    const proxy = await startPostgresProxy(url, () => {
      const fates = ['pass', 'cut after', 'pass', 'cut before'] as const;
      return armed ? fates[seen++ % 4]! : 'pass';
    });
    const copies = await Promise.all([startCopy(proxy.url), startCopy(proxy.url)]);
    try {
      await createCollection('users', { email: { type: 'string', unique: true } });
      armed = true;
      const stored: string[] = [];
      await Promise.all(
        Array.from({ length: 8 }, async (_, writer) => {
          for (let n = 0; n < 15; n++) {
            // Two writers store each value, and exactly one of them succeeds.
            const email = `${writer >> 1}-${n}`;
            const request = storeRequest(app, 'users', [{ email, writer }]);
            const outcome = await eventually(() =>
              copies[writer % 2]!.methods.store(request).then(
                () => 'stored',
                ({ code, reason }: { code: string; reason: string }) => (code === 'UNAVAILABLE' ? undefined : reason),
              ),
            );
            if (outcome === 'stored') stored.push(email);
            else expect(outcome).toBe('UNIQUE_VIOLATION');
          }
        }),
      );
      armed = false;
      expect(new Set(stored).size).toBe(stored.length);
      expect(stored).toHaveLength(60);
      expect((await one.methods.getApplication({ appId: app.appId })).height).toBe('60');
      await checkChain(pool, app);
    } finally {
      armed = false;
      await Promise.all(copies.map((copy) => copy.stop()));
      await proxy.stop();
    }
  });

  test('a change of the catalog whose COMMIT got no answer is unavailable, not a bug', async () => {
    let cut = false;
    const proxy = await startPostgresProxy(url, () => {
      const fate = cut ? 'cut after' : 'pass';
      cut = false;
      return fate;
    });
    const copy = await startCopy(proxy.url);
    try {
      await copy.methods.getApplication({ appId: app.appId });
      const request = { appId: app.appId, name: 'films', schemaJson: '', readAccess: 'public' };
      cut = true;
      await expect(copy.methods.createCollection(request)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    } finally {
      await copy.stop();
      await proxy.stop();
    }
  });

  test('a write that was refused after its COMMIT got no answer is not stored by what Postgres had not read yet', async () => {
    await createCollection('users', { email: { type: 'string', unique: true } });
    await store('users', [{ id: 'old', email: 'x' }]);
    await one.methods.setRetention({ appId: app.appId, collection: 'users', retentionDays: 1 });
    const proxy = await startHoldingProxy(url);
    const copy = await startCopy(proxy.url);
    try {
      await store('users', [{ id: 'ready', email: 'ready' }], copy);
      proxy.holdTransaction();
      await expect(store('users', [{ id: 'late', email: 'x' }], copy)).rejects.toMatchObject({
        reason: 'UNIQUE_VIOLATION',
      });
      // The value becomes free without a commit, and without a change of the catalog.
      await pool.query(
        `update a_${app.number}.c_${await collectionNumber(pool, app, 'users')} set updated_at = now() - interval '9 days' where id = 'old'`,
      );
      await purgeExpired({ pool, log, derived: new AfterPlan(liveViewRows).removals });
      expect(await proxy.release()).toMatch(/division by zero/);
      const { resultsJson } = await store('users', [{ id: 'new', email: 'x' }]);
      expect(resultsJson.toString()).toContain('"celestia_height":3');
      await checkChain(pool, app);
    } finally {
      await copy.stop();
      await proxy.stop();
    }
  });
});
