import { notFound, type ServiceError } from '@granary/shared/errors';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

export const APP_NOT_FOUND = 'APP_NOT_FOUND';

/** An application: its number names its tables, its id is what callers use. */
export interface App {
  number: bigint;
  appId: string;
}

export const appNotFound = (appId: string): ServiceError => notFound(APP_NOT_FOUND, `There is no app ${appId}`);

/** Number and id of an app that is not deleted. Throws APP_NOT_FOUND. */
export async function findApp(db: Queryable, appId: string): Promise<App> {
  const app = await row<{ number: bigint }>(
    db,
    sql`select number from application where app_id = ${appId} and deleted_at is null`,
  );
  if (!app) throw appNotFound(appId);
  return { number: app.number, appId };
}
