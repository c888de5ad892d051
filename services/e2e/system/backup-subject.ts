import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { builtServices } from '@granary/testing/stack';
import { startStack } from '@granary/stack/stack';
import { isOnStack, operatorKey } from '../support/granary';
import { OwnGranary } from '../support/own-process';

/** A Granary on a data directory of its own: `npm start`, or `npm run stack` in the pass on a stack. */
export interface Subject {
  url: string;
  stop(): Promise<void>;
}

export async function startSubject(dataDir: string): Promise<Subject> {
  if (!isOnStack) {
    const own = await OwnGranary.start(dataDir, { OPERATOR_KEY: operatorKey });
    return { url: own.url, stop: () => own.end('SIGTERM') };
  }
  await builtServices();
  const say = (): void => undefined;
  const stack = await startStack({
    dataDir,
    host: '127.0.0.1',
    port: 0,
    operatorKey,
    say,
    environment: process.env,
    bus: 'kafka',
    store: 'minio',
  });
  return { url: stack.url, stop: () => stack.stop() };
}

/** A superuser's connection to a database of the Postgres that runs on a data directory. */
export async function withDatabase<T>(
  dataDir: string,
  service: string,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const password = (await readFile(join(dataDir, 'postgres-password'), 'utf8')).trim();
  const port = Number((await readFile(join(dataDir, 'postgres/postmaster.pid'), 'utf8')).split('\n')[3]);
  const client = new Client({ host: '127.0.0.1', port, user: 'postgres', password, database: `granary_${service}` });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
