import type { DatabaseService } from '@granary/local/start/constellation';
import { cloneDatabase } from '@granary/testing/database';

export type DatabaseUrls = Record<DatabaseService, string>;

/** The names of the databases that have the schema of each service and nothing else, see `templateDatabase`. */
export type Templates = Record<DatabaseService, string>;

/** The databases of a Granary: fresh ones that are migrated already, but for the services whose URL is in `others`. */
export async function cloneDatabases(templates: Templates, others: Partial<DatabaseUrls> = {}): Promise<DatabaseUrls> {
  const urls = Object.entries(templates).map(async ([service, template]) => [
    service,
    others[service as DatabaseService] ?? (await cloneDatabase(template)).url,
  ]);
  return Object.fromEntries(await Promise.all(urls)) as DatabaseUrls;
}
