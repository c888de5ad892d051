import { rm } from 'node:fs/promises';
import type { TestGlobals } from './global-setup';

export default async function globalTeardown(): Promise<void> {
  const { testPostgres, testStack } = globalThis as TestGlobals;
  await testStack?.stop();
  await testPostgres?.postgres.stop();
  if (testPostgres) await rm(testPostgres.directory, { recursive: true, force: true });
}
