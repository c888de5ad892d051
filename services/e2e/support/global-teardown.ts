import { rm } from 'node:fs/promises';
import type { TestGlobals } from './global-setup';

export default async function globalTeardown(): Promise<void> {
  const { testPostgres, testStack, isWhole } = globalThis as TestGlobals;
  await testStack?.stop();
  const uncalled = isWhole && testStack ? testStack.uncalledMethods() : [];
  if (uncalled.length > 0) {
    console.error(`FAILED: no suite that stack-suites.json has always on the stack calls ${uncalled.join(', ')}`);
    process.exitCode = 1;
  }
  await testPostgres?.postgres.stop();
  if (testPostgres) await rm(testPostgres.directory, { recursive: true, force: true });
}
