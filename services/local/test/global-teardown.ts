import { rm } from 'node:fs/promises';
import type { TestPostgres } from './global-setup';

export default async function globalTeardown(): Promise<void> {
  const { testPostgres } = globalThis as { testPostgres?: TestPostgres };
  await testPostgres?.postgres.stop();
  if (testPostgres) await rm(testPostgres.directory, { recursive: true, force: true });
}
