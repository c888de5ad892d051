import { execFile, execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { blobsSchema } from '@granary/blobs/service';
import { dataSchema } from '@granary/data/service';
import { financeSchema } from '@granary/finance/service';
import { paymentsSchema } from '@granary/payments/service';
import { createLogger } from '@granary/shared/logger';
import { runMigrations } from '@granary/shared/service/migrate-command';
import type { Schema } from '@granary/shared/service/schema';
import { superuserUrl } from '@granary/testing/database';
import { tasksSchema } from '@granary/tasks/service';
import { databaseServices, type DatabaseService } from '@granary/local/start/constellation';

const file = path.join(__dirname, '../../../deploy/postgres.sql');
const schemas: Record<DatabaseService, Schema> = {
  blobs: blobsSchema,
  data: dataSchema,
  finance: financeSchema,
  payments: paymentsSchema,
  tasks: tasksSchema,
};

/** Databases and roles as deploy/postgres.sql makes them, with names of their own. */
export interface ServiceRoles {
  /** By the role of each service. */
  urls: Record<DatabaseService, string>;
  /** By the owner of each database. */
  ownerUrls: Record<DatabaseService, string>;
  role: (service: DatabaseService) => string;
  /** Runs the script. */
  prepare: () => Promise<string>;
  /** The command `migrate` of a service, as the owner of its database. */
  migrate: (service: DatabaseService, settings?: Record<string, string>) => Promise<void>;
}

/** Does `work` on a connection of its own. */
export async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** `describe` where the program psql is; without it the suite is skipped, or fails with REQUIRE_STACK=1. */
export function describeWithPsql<D extends { skip: unknown }>(describe: D): D | D['skip'] {
  try {
    execFileSync('psql', ['--version'], { stdio: 'ignore' });
    return describe;
  } catch {
    if (process.env['REQUIRE_STACK'] === '1') return describe;
    console.warn('TESTS OF deploy/postgres.sql ARE SKIPPED: the program psql is missing (postgresql-client).');
    return describe.skip;
  }
}

/** Nothing is created before `prepare`. `adminUrl` is that of the role that runs the script. */
export function serviceRoles(adminUrl = superuserUrl()): ServiceRoles {
  const prefix = `roles_${randomBytes(5).toString('hex')}`;
  const password = randomBytes(12).toString('hex');
  const role = (service: DatabaseService) => `${prefix}_${service}`;
  const urlsOf = (suffix: string) =>
    Object.fromEntries(
      databaseServices.map((service) => {
        const url = Object.assign(new URL(adminUrl), {
          username: `${role(service)}${suffix}`,
          password,
          pathname: `/${role(service)}`,
        });
        return [service, url.href];
      }),
    ) as Record<DatabaseService, string>;
  const ownerUrls = urlsOf('_owner');
  const passwords = Object.fromEntries(
    databaseServices.flatMap((service) => {
      const name = service.toUpperCase();
      return [
        [`${name}_PASSWORD`, password],
        [`${name}_OWNER_PASSWORD`, password],
      ];
    }),
  );
  return {
    urls: urlsOf(''),
    ownerUrls,
    role,
    prepare: async () => {
      const args = ['-X', '-v', `prefix=${prefix}`, '-f', file, adminUrl];
      const { stdout, stderr } = await promisify(execFile)('psql', args, { env: { ...process.env, ...passwords } });
      return stdout + stderr;
    },
    migrate: (service, settings = { SERVICE_ROLE: role(service) }) =>
      runMigrations(
        service,
        schemas[service],
        { DATABASE_URL: ownerUrls[service], ...settings },
        createLogger('test', 'silent'),
      ),
  };
}
