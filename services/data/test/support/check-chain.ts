import { createHash } from 'node:crypto';
import type { Pool } from '@granary/shared/postgres/pool';
import type { App } from './data-service';

/** Checks that links follow one another without gaps up to the head, and that counters are exact. */
export async function checkChain(pool: Pool, app: App): Promise<void> {
  const { rows } = await pool.query<{ height: bigint; hash: Buffer; content_hash: Buffer }>(
    `select height, hash, content_hash from a_${app.number}.commits order by ordinal`,
  );
  let previous: Buffer = Buffer.alloc(32);
  for (const [at, { height, hash, content_hash: content }] of rows.entries()) {
    expect(height).toBe(BigInt(at + 1));
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64BE(height);
    expect(hash).toEqual(createHash('sha256').update(previous).update(bytes).update(content).digest());
    previous = hash;
  }
  const head = await pool.query<{ height: bigint; hash: Buffer; is_last: boolean }>(
    `select height, hash, ordinal = (select coalesce(max(ordinal), 0) from a_${app.number}.commits) as is_last
     from head where app_number = $1`,
    [app.number],
  );
  expect(head.rows).toEqual([{ height: BigInt(rows.length), hash: previous, is_last: true }]);
  const collections = await pool.query<{
    number: bigint;
    rows: number;
    deleted: number;
    versions: number;
    bytes: number;
  }>(
    `select number, row_count::int as rows, deleted_count::int as deleted, version_count::int as versions, size_bytes::int as bytes
     from collection where app_number = $1`,
    [app.number],
  );
  for (const { number, ...counters } of collections.rows) {
    const found = await pool.query(
      `select (select count(*)::int from a_${app.number}.c_${number}) as rows,
              (select count(*)::int from a_${app.number}.c_${number} where deleted) as deleted,
              (select count(*)::int from a_${app.number}.h_${number}) as versions,
              (select coalesce(sum(octet_length(body)), 0)::int
               from (select body from a_${app.number}.c_${number} union all select body from a_${app.number}.h_${number})) as bytes`,
    );
    expect(found.rows).toEqual([counters]);
    // Each version is at its place in the commit that wrote it.
    const misplaced = await pool.query(
      `select version.id from (select id, ordinal, place from a_${app.number}.c_${number}
                               union all select id, ordinal, place from a_${app.number}.h_${number}) version
       left join a_${app.number}.commits c on c.ordinal = version.ordinal
       where c.ids[version.place + 1] is distinct from version.id`,
    );
    expect(misplaced.rows).toEqual([]);
    const last = await pool.query(
      `select c.name from collection c where c.number = ${number}
       and c.last_write_at is distinct from (select max(at) from a_${app.number}.commits where collection = c.name)`,
    );
    expect(last.rows).toEqual([]);
  }
}
