import { setTimeout as delay } from 'node:timers/promises';
import { postgresTimeUs, postgresUsage, processorTimeUs, residentMib } from './processes.mjs';
import { bulkSize, runs } from './runs.mjs';

const loadConnections = 4;
const loadTimeoutSeconds = 600;
const settleTimeoutMs = 3_000;
const settleStepMs = 100;
/** The share of one core below which the machine counts as idle. */
const quietShare = 0.15;

/**
 * One run of one side. Returns `{perSecond, p50Ms, p99Ms, requests, cpuUs, memoryMib}`; `cpuUs` is the processor time
 * per request by process, including Postgres. Throws if a request was refused.
 */
export async function measure({ load, postgresPid }, side, runName, seconds) {
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
export function look(side, postgresPid) {
  const processes = Object.entries(side.pids).map(([name, pid]) => {
    return { name, timeUs: processorTimeUs(pid), memoryMib: residentMib(pid) };
  });
  if (processes.some(({ timeUs }) => timeUs === undefined)) return undefined;
  return { processes, postgres: postgresUsage(postgresPid, side.prefix) };
}

/** Processor time per request, and memory, by process. */
export function usageOf(before, after, requests) {
  const cpuUs = {};
  const memoryMib = {};
  if (!before || !after) return { cpuUs, memoryMib };
  after.processes.forEach(({ name, timeUs, memoryMib: memory }, i) => {
    cpuUs[name] = (timeUs - before.processes[i].timeUs) / requests;
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
export async function settle(sides, postgresPid) {
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
export async function loadDocuments(load, { name, port, requests }, documents) {
  const result = await load.call('run', {
    ...requests.load,
    port,
    connections: loadConnections,
    seconds: loadTimeoutSeconds,
    firstNumber: 0,
    requestsMax: documents / bulkSize,
  });
  if (result.refused !== undefined) throw new Error(`${name} refused a request of the load: ${result.refused}`);
  return result;
}
