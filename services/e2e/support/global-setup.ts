import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, statfs } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { commitSeed, seedVariable } from '@granary/testing/seeds';
import { measureSlowness, slownessVariable } from '@granary/testing/speed';
import { resolveDataDir } from '@granary/local/postgres/data-dir';
import { startPostgres, type EmbeddedPostgres } from '@granary/local/postgres/postgres';
import { startStackServer, type StackServer } from './stack-server';

export interface TestPostgres {
  postgres: EmbeddedPostgres;
  directory: string;
}

/** What the end of the run has to stop. */
export interface TestGlobals {
  testPostgres?: TestPostgres;
  testStack?: StackServer;
  /** Whether all tests of the suites run. */
  isWhole?: boolean;
}

const prefix = 'granary-test-';
const silent = { info: () => undefined, warn: () => undefined };
/** Linux has a file system in memory here. */
const memory = { folder: '/dev/shm', type: 0x01021994 };
const gib = 1024 ** 3;
/** Postgres needs so much of it, and the processes of the run need what is left of the memory. */
const memoryBytes = { needed: 4 * gib, left: 6 * gib };

/**
 * One Postgres for the whole run, with all of its safety on as in earnest, in a temporary directory; and Kafka and
 * MinIO for those who ask.
 */
export default async function globalSetup({ testNamePattern }: { testNamePattern?: string }): Promise<void> {
  process.env[seedVariable] ??= commitSeed();
  process.env[slownessVariable] ??= measureSlowness().toFixed(1);
  await endAbandoned();
  const directory = await mkdtemp(path.join(await chooseFolder(), `${prefix}${process.pid}-`));
  const { dataDir } = await resolveDataDir({ defaultDir: directory });
  const postgres = await startPostgres({ dataDir, log: silent });
  process.env.GRANARY_TEST_POSTGRES = postgres.url('postgres');
  const globals = globalThis as TestGlobals;
  globals.testPostgres = { postgres, directory: dataDir };
  globals.testStack = await startStackServer();
  globals.isWhole = !testNamePattern;
  const { url, missing } = globals.testStack;
  process.env.GRANARY_TEST_STACK = JSON.stringify({ url, missing });
  const fate = process.env.REQUIRE_STACK === '1' ? 'FAILING' : 'SKIPPED';
  for (const [part, reason] of Object.entries(missing)) {
    const alone: Record<string, string> = {
      python: 'IN PYTHON',
      nginx: 'BEHIND NGINX',
      chromium: 'IN A BROWSER',
      helm: 'OF THE CHARTS',
      release: 'OF UPGRADES',
    };
    const affected = alone[part] ?? `OF ${part.toUpperCase()}, AND ALL TESTS ON A STACK,`;
    console.warn(`TESTS ${affected} ARE ${fate}: ${reason}`);
  }
}

/**
 * Postgres is in memory where there is room, since each drop of a database waits for a checkpoint, which takes most of
 * a second on a disk. The suites that kill Postgres or fill its disk start one of their own elsewhere.
 */
async function chooseFolder(): Promise<string> {
  const room = await statfs(memory.folder).catch(() => undefined);
  if (room?.type !== memory.type || room.bavail * room.bsize < memoryBytes.needed) return os.tmpdir();
  return process.availableMemory() < memoryBytes.needed + memoryBytes.left ? os.tmpdir() : memory.folder;
}

/** A run that was killed leaves its Postgres behind; whose it was is told by the process id in the folder's name. */
async function endAbandoned(): Promise<void> {
  for (const folder of [os.tmpdir(), memory.folder].filter((each) => existsSync(each))) {
    for (const name of await readdir(folder)) await endAbandonedIn(path.join(folder, name));
  }
}

async function endAbandonedIn(directory: string): Promise<void> {
  const name = path.basename(directory);
  const pid = Number(new RegExp(`^${prefix}(\\d+)-`).exec(name)?.[1]);
  if (!(pid > 0) || isRunning(pid)) return;
  try {
    if (existsSync(path.join(directory, 'postgres'))) {
      const left = await startPostgres({ dataDir: directory, log: silent });
      await left.stop();
    }
    await rm(directory, { recursive: true, force: true });
  } catch {
    // Another user's, or another run is ending it at this moment.
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
