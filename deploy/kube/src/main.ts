import path from 'node:path';
import { proveOnApiServer } from './api-server';
import { findObstacle, findServerObstacle } from './cluster/requirements';
import type { Counts } from './counts';
import { proveInCluster } from './run';
import type { Say } from './say';
import type { Choice } from './steps/steps';

const root = path.join(__dirname, '../../..');
/**
 * The time between the limit and the end of this process: for the report of the failure, and the end of the cluster.
 */
const endLimitMs = 120_000;

const say: Say = (line) => console.log(`${new Date().toISOString().slice(11, 19)} ${line}`);

/** The options that the arguments of the command choose. */
export interface MainOptions extends Choice {
  minutes: number;
}

/**
 * Proves the image and the chart as far as this machine can. `npm run test:system` runs it in a child process and takes
 * the counts as a message; there a cluster may be impossible.
 */
export async function main({ minutes, ...choice }: MainOptions): Promise<void> {
  const signal = startLimit(minutes);
  const obstacle = await findObstacle(say);
  if (obstacle !== undefined && process.env.REQUIRE_STACK === '1') throw new Error(obstacle);
  const counts =
    obstacle === undefined
      ? await proveInCluster(root, { ...choice, say, signal })
      : await proveWithoutCluster(obstacle, signal);
  say(`${counts.passed} passed, ${counts.failed} failed`);
  if (counts.failed > 0) process.exitCode = 1;
  await report({ skipped: 0, ...counts });
}

/** Returns a signal that is aborted when the time is up. This process ends soon after that, and the cluster with it. */
function startLimit(minutes: number): AbortSignal {
  if (!(minutes > 0)) throw new Error(`--minutes must be a number above 0.`);
  const limit = new AbortController();
  const reason = new Error(`It did not end within ${minutes} minutes.`);
  const end = (): void => {
    console.error(reason.message);
    process.exit(1);
  };
  // A build that this process has run before counts towards the time.
  const leftMs = minutes * 60_000 - performance.now();
  setTimeout(() => limit.abort(reason), leftMs).unref();
  setTimeout(end, leftMs + endLimitMs).unref();
  return limit.signal;
}

/** Proves what can be proved on an API server alone; skips even that where no API server can run. */
async function proveWithoutCluster(obstacle: string, signal: AbortSignal): Promise<Counts> {
  const other = await findServerObstacle();
  console.log(
    `THE TESTS IN A REAL KUBERNETES ARE SKIPPED${other ? '' : ', BUT FOR ITS API SERVER'}: ${other ?? obstacle}`,
  );
  if (other !== undefined) return { passed: 0, failed: 0, skipped: 1 };
  return { ...(await proveOnApiServer(root, { say, signal })), skipped: 1 };
}

async function report(counts: Counts): Promise<void> {
  await new Promise((resolve) => {
    if (process.send) process.send(counts, undefined, undefined, resolve);
    else resolve(undefined);
  });
}
