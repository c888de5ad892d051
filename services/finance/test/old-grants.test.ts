import { randomUUID } from 'node:crypto';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { removeOldGrants } from '../src/grants/old-grants';
import { financePool } from './support/harness';

let pool: Pool;
beforeEach(async () => {
  ({ pool } = await financePool(2));
});
afterEach(() => pool.end());

const daysAgo = (days: number): Sql => sql`clock_timestamp() - interval '1 day' * ${days}`;

async function makeGrant(expires: Sql, revoked: Sql = sql`null`): Promise<string> {
  const id = randomUUID();
  await execute(
    pool,
    sql`insert into user_grant (id, address, key_hash, limit_utia, expires_at, created_at, revoked_at)
        values (${id}, 'celestia1', ${Buffer.from(id)}, 1000, ${expires}, ${daysAgo(400)}, ${revoked})`,
  );
  return id;
}

async function makeDeduction(grantId: string, state: string, at: Sql, height: number | null = null): Promise<string> {
  const id = randomUUID();
  await execute(
    pool,
    sql`insert into grant_deduction (id, grant_id, address, app_id, operation_type, collection, amount, recipient, state, height,
          created_at, updated_at)
        values (${id}, ${grantId}, 'celestia1', 'demo', 'read', 'films', 5, 'celestia2', ${state}, ${height}, ${at}, ${at})`,
  );
  return id;
}

const idsIn = async (table: Sql) =>
  (await rows<{ id: string }>(pool, sql`select id from ${table}`)).map(({ id }) => id);
const grants = () => idsIn(sql`user_grant`);
const deductions = () => idsIn(sql`grant_deduction`);

test('grants and deductions go 90 days after their end, a grant after its deductions', async () => {
  const expired = await makeGrant(daysAgo(91));
  await makeDeduction(expired, 'confirmed', daysAgo(91), 5);
  const inForce = await makeGrant(daysAgo(-30));
  const kept = [
    await makeDeduction(inForce, 'failed', daysAgo(89)),
    // What is under way is never over.
    await makeDeduction(inForce, 'pending', daysAgo(200)),
  ];
  await makeDeduction(inForce, 'failed', daysAgo(100));
  const recent = await makeGrant(daysAgo(89));
  await makeGrant(daysAgo(-30), daysAgo(91));
  const recentlyRevoked = await makeGrant(daysAgo(-30), daysAgo(89));
  // The two old deductions and the grant without one, then the grant that had one.
  expect(await removeOldGrants(pool)).toBe(3);
  expect(await grants()).toContain(expired);
  expect(await removeOldGrants(pool)).toBe(1);
  expect((await grants()).sort()).toEqual([inForce, recent, recentlyRevoked].sort());
  expect((await deductions()).sort()).toEqual(kept.sort());
  expect(await removeOldGrants(pool)).toBe(0);
});

test('a deduction stays until its block was compared with it', async () => {
  const grant = await makeGrant(daysAgo(100));
  const id = await makeDeduction(grant, 'confirmed', daysAgo(100), 20);
  await execute(pool, sql`insert into chain_watch (chain_id, height, checked_height) values ('chain', 25, 19)`);
  expect(await removeOldGrants(pool)).toBe(0);
  expect(await deductions()).toEqual([id]);
  await execute(pool, sql`update chain_watch set checked_height = 20`);
  expect(await removeOldGrants(pool)).toBe(1);
  expect(await removeOldGrants(pool)).toBe(1);
  expect(await grants()).toEqual([]);
});

test('many go in several runs', async () => {
  await execute(
    pool,
    sql`insert into user_grant (id, address, key_hash, limit_utia, expires_at, created_at)
        select gen_random_uuid(), 'celestia1', decode(lpad(to_hex(n), 8, '0'), 'hex'), 1000, ${daysAgo(91)}, ${daysAgo(400)}
        from generate_series(1, 1200) n`,
  );
  expect([await removeOldGrants(pool), await removeOldGrants(pool), await removeOldGrants(pool)]).toEqual([
    500, 500, 200,
  ]);
});
