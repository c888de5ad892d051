import { setTimeout as delay } from 'node:timers/promises';
import type { LoadCalls, LoadRequest, LoadResult } from './load';
import {
  postgresTimeUs,
  postgresUsage,
  processorTimeUs,
  residentMib,
  type Child,
  type PostgresUsage,
} from './processes';
import { bulkSize, runs, type RunName } from './runs';
import type { Side } from './sides';
import type { Tools } from './tools';

const loadConnections = 4;
const loadTimeoutSeconds = 600;
const settleTimeoutMs = 3_000;
const settleStepMs = 100;
/** The share of one core below which the machine counts as idle. */
const quietShare = 0.15;

/** The usage of each process, including Postgres; empty on systems without /proc. */
export interface Usage {
  /** Processor time per request. */
  cpuUs: Record<string, number>;
  memoryMib: Record<string, number | undefined>;
}

/** One run of one side. */
export interface Measurement extends Usage {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
  requests: number;
}

/** Processor times so far, and memory. */
export interface UsageSoFar {
  processes: Array<{ name: string; timeUs: number; memoryMib: number | undefined }>;
  postgres: PostgresUsage;
}

/** Measures one run of one side. Throws if a request was refused. */
export async function measure(
  { load, postgresPid }: Pick<Tools, 'load' | 'postgresPid'>,
  side: Side,
  runName: RunName,
  seconds: number,
): Promise<Measurement> {
  const run = runs[runName];
  const before = look(side, postgresPid);
  const result = await load.call('run', {
    ...side.requests[runName],
    port: side.port,
    connections: run.connections,
    seconds,
    firstNumber: side.nextNumber,
    // JSON cannot represent infinity.
    requestsMax: Math.min(run.requestsMax, Number.MAX_SAFE_INTEGER),
  });
  const after = look(side, postgresPid);
  if (result.refused !== undefined) throw new Error(`${side.name} refused a request of ${runName}: ${result.refused}`);
  const { requests, elapsedMs, p50Ms, p99Ms } = result;
  side.nextNumber += requests * (run.writes ?? 1);
  if (run.writes) side.accepted.writes += requests * run.writes;
  if (run.files) side.accepted.files += requests;
  return {
    perSecond: (requests * run.perRequest * 1000) / elapsedMs,
    p50Ms,
    p99Ms,
    requests,
    ...usageOf(before, after, requests),
  };
}

/** The current processor times; `undefined` on systems without /proc. */
export function look(side: Pick<Side, 'pids' | 'prefix'>, postgresPid: number): UsageSoFar | undefined {
  const processes: UsageSoFar['processes'] = [];
  for (const [name, pid] of Object.entries(side.pids)) {
    const timeUs = processorTimeUs(pid);
    if (timeUs === undefined) return undefined;
    processes.push({ name, timeUs, memoryMib: residentMib(pid) });
  }
  return { processes, postgres: postgresUsage(postgresPid, side.prefix) };
}

/** Processor time per request, and memory, by process. */
export function usageOf(before: UsageSoFar | undefined, after: UsageSoFar | undefined, requests: number): Usage {
  const cpuUs: Usage['cpuUs'] = {};
  const memoryMib: Usage['memoryMib'] = {};
  if (!before || !after) return { cpuUs, memoryMib };
  after.processes.forEach(({ name, timeUs, memoryMib: memory }, i) => {
    cpuUs[name] = (timeUs - before.processes[i]!.timeUs) / requests;
    memoryMib[name] = memory;
  });
  cpuUs.postgres = postgresTimeUs(before.postgres, after.postgres) / requests;
  memoryMib.postgres = after.postgres.memoryMib;
  return { cpuUs, memoryMib };
}

/**
 * Waits until the background work of a run (events, vacuum, checkpoints) is done, so that the next side does not pay
 * for it; with a timeout.
 */
export async function settle(sides: ReadonlyArray<Pick<Side, 'pids'>>, postgresPid: number): Promise<void> {
  const nodeTimeUs = () => {
    const pids = sides.flatMap((side) => Object.values(side.pids));
    return pids.reduce((sum, pid) => sum + (processorTimeUs(pid) ?? 0), 0);
  };
  // The empty prefix matches all databases.
  const lookAround = () => ({ nodeUs: nodeTimeUs(), postgres: postgresUsage(postgresPid, '') });
  const endsMs = performance.now() + settleTimeoutMs;
  for (let last = lookAround(); performance.now() < endsMs;) {
    await delay(settleStepMs);
    const now = lookAround();
    const takenUs = now.nodeUs - last.nodeUs + postgresTimeUs(last.postgres, now.postgres);
    if (takenUs <= settleStepMs * 1000 * quietShare) return;
    last = now;
  }
}

/**
 * Stores this many documents through the API, in bulk requests. Throws if one is refused; returns the load generator's
 * result.
 */
export async function loadDocuments(
  load: Child<LoadCalls>,
  { name, port, requests }: { name: string; port: number; requests: { load: LoadRequest } },
  documents: number,
  connections = loadConnections,
): Promise<LoadResult> {
  const result = await load.call('run', {
    ...requests.load,
    port,
    connections,
    seconds: loadTimeoutSeconds,
    firstNumber: 0,
    requestsMax: documents / bulkSize,
  });
  if (result.refused !== undefined) throw new Error(`${name} refused a request of the load: ${result.refused}`);
  return result;
}
