import type { Pool } from '@granary/shared/postgres/pool';
import type { App } from './data-service';

/**
 * Blocks inserts of a document, without a lock (waits for locks have a short timeout), until the returned function is
 * called.
 */
export async function holdDocument(
  pool: Pool,
  app: App,
  collectionNumber: bigint,
  id: string,
): Promise<() => Promise<unknown>> {
  await pool.query(`
    create table a_${app.number}.held (); insert into a_${app.number}.held default values;
    create function a_${app.number}.hold() returns trigger language plpgsql as $$
      begin
        while exists (select from a_${app.number}.held) loop perform pg_sleep(0.01); end loop;
        return new;
      end $$;
    create trigger hold before insert on a_${app.number}.c_${collectionNumber}
      for each row when (new.id = '${id}') execute function a_${app.number}.hold()`);
  return () => pool.query(`delete from a_${app.number}.held`);
}
