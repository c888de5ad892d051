import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { limitMs, waitMs } from '@granary/testing/speed';
import { newApp, operatorKey, type TestApp } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';
import { p95, shareServed, Victim, type VictimReport } from './victim';

const quietMs = 2_000;
/** Longer than the 5 s after which a body that does not arrive is refused, also where that is noticed late. */
const attackedMs = 5_000 + waitMs(1_000);
/** Below this it is the scheduler of the machine that decides how long a request takes. */
const quietFloorMs = limitMs(15);
const latencyFactorMax = 5;
const shareServedMin = 0.9;
const leftMemoryBytesMax = 100 * 1024 ** 2;
const memoryTimeoutMs = 30_000;

export interface Arena {
  url: string;
  /** Another app, of the attacker or of somebody the attacker has a key of. */
  app: TestApp;
  operatorKey: string;
  residentBytes(): number;
  /** Requests that the process collects its garbage; it has not yet when this returns. */
  collectGarbage(): void;
  newApp(appId?: string): Promise<TestApp>;
  close(): Promise<void>;
}

export interface Attack {
  /**
   * Takes what the attack holds while it runs, and resolves when it has that; it gives all of it back when `signal`
   * aborts. A request that any client may send costs others time while it is served, however it is used afterwards:
   * others have to be served meanwhile, and how late is measured from here on.
   */
  occupy?(signal: AbortSignal): Promise<void>;
  /** Does harm until `signal` aborts, then closes all of its connections and resolves. */
  run(signal: AbortSignal): Promise<void>;
  /** How much resident memory may grow meanwhile, in bytes. */
  memoryBytesMax?: number;
}

export interface Outcome {
  shareServed: number;
  /** Of the p95 when quiet. */
  latencyFactor: number;
  /** Requests that got a status that only a bug gives. */
  serverErrors: number;
  memoryGrowthBytes: number;
}

/** All of Granary in a process of its own, with an app that is attacked from or by. */
export async function openArena(settings: Record<string, string> = {}): Promise<Arena> {
  const dataDir = await mkdtemp(join(tmpdir(), 'granary-arena-'));
  const granary = await OwnGranary.start(dataDir, {
    OPERATOR_KEY: operatorKey,
    // Quoted, because a path may have spaces.
    NODE_OPTIONS: `--require ${JSON.stringify(join(__dirname, 'collect-garbage.js'))}`,
    ...settings,
  });
  const ofApp = (appId?: string) => newApp({ url: granary.url }, appId);
  return {
    url: granary.url,
    app: await ofApp(),
    operatorKey,
    residentBytes: () => granary.residentBytes(),
    collectGarbage: () => granary.signal('SIGUSR2'),
    newApp: ofApp,
    close: async () => {
      await granary.end('SIGTERM');
      await endAllProcesses();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/**
 * Measures what another app gets while the attack runs, and expects that it hardly notices: most of its requests are
 * answered, none with 500, not much later than when it is quiet, and memory is given back afterwards.
 */
export async function expectUnharmed(arena: Arena, attack: Attack): Promise<Outcome> {
  const { appId, key } = await arena.newApp();
  const victim = await Victim.start({ url: arena.url, appId, key });
  // The first requests of an app open connections and fill caches.
  await victim.work(500);
  const quiet = await victim.work(quietMs);
  const before = arena.residentBytes();

  const stopped = new AbortController();
  let peak = before;
  const sampling = setInterval(() => (peak = Math.max(peak, arena.residentBytes())), 50);
  let attacking: Promise<void> | undefined;
  let occupied: VictimReport | undefined;
  let attacked: VictimReport;
  try {
    if (attack.occupy) {
      [occupied] = await Promise.all([victim.work(quietMs), attack.occupy(stopped.signal)]);
    }
    attacking = attack.run(stopped.signal);
    attacked = await Promise.race([victim.work(attackedMs), attacking.then(() => neverEnds())]);
  } finally {
    stopped.abort();
    clearInterval(sampling);
    await attacking;
  }
  const statuses = [...(occupied?.statuses ?? []), ...attacked.statuses];
  const outcome = {
    shareServed: shareServed(statuses),
    latencyFactor: p95(attacked) / Math.max(p95(quiet), quietFloorMs),
    serverErrors: statuses.filter((status) => status === 500).length,
    memoryGrowthBytes: peak - before,
  };
  expect(outcome.serverErrors).toBe(0);
  expect(outcome.shareServed).toBeGreaterThanOrEqual(shareServedMin);
  expect(outcome.latencyFactor).toBeLessThanOrEqual(latencyFactorMax);
  if (attack.memoryBytesMax !== undefined) expect(outcome.memoryGrowthBytes).toBeLessThan(attack.memoryBytesMax);
  await eventually(() => isGivenBack(arena, before), memoryTimeoutMs, { everyMs: 500 });
  return outcome;
}

/** Whether what is left of the attack in memory is little, beside the resident `before`, in bytes. */
async function isGivenBack(arena: Arena, before: number): Promise<boolean> {
  arena.collectGarbage();
  await delay(100);
  return arena.residentBytes() < before + leftMemoryBytesMax;
}

function neverEnds(): never {
  throw new Error('the attack ended before it was stopped');
}
