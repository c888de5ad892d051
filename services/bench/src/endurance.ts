import type { Memory } from './child';
import { settle } from './measure';
import { postgresUsage } from './processes';
import { namesOf } from './records';
import { table } from './report';
import type { GranarySide } from './sides';
import type { Tools } from './tools';

/** The memory of a process in MiB after a garbage collection; for Postgres, the private memory of its connections. */
type ProcessMemory = Pick<Memory, 'resident'> & Partial<Memory>;

interface Growth {
  requests: number;
  seconds: number;
  processes: Record<string, { before: ProcessMemory; after: ProcessMemory }>;
}

/** Target for growth, in MiB per process. */
const wantedMib = 20;
/** The mix of requests: their shares, and connections in proportion to the cost of each. */
const mix = {
  point: { share: 0.6, connections: 16, documents: 0 },
  page: { share: 0.1, connections: 4, documents: 0 },
  insert: { share: 0.3, connections: 12, documents: 1 },
};
/** The fraction of requests sent before the first memory measurement. */
const warmUpShare = 0.2;
const timeoutSeconds = 24 * 3600;

export const memoryTitle = 'memory: growth of each process over many requests, after the warm-up';

/**
 * Sends a fifth of `requests` as a warm-up, then all of them: point reads, pages and inserts. Returns the
 * memory of each process before and after.
 */
export async function measureMemory(tools: Tools, side: GranarySide, requests: number): Promise<Growth> {
  await send(tools, side, Math.ceil(requests * warmUpShare));
  const before = await look(tools, side);
  const startedMs = performance.now();
  await send(tools, side, requests);
  const seconds = (performance.now() - startedMs) / 1000;
  const after = await look(tools, side);
  const processes = Object.keys(before).map((name) => [name, { before: before[name]!, after: after[name]! }] as const);
  return { requests, seconds, processes: Object.fromEntries(processes) };
}

async function send({ load }: Tools, side: GranarySide, requests: number): Promise<void> {
  const results = await Promise.all(
    namesOf(mix).map((run) => {
      const { share, connections, documents } = mix[run];
      const requestsMax = Math.ceil(requests * share);
      const firstNumber = side.nextNumber;
      side.nextNumber += requestsMax * documents;
      side.accepted.writes += requestsMax * documents;
      return load.call('run', {
        ...side.requests[run],
        port: side.port,
        seconds: timeoutSeconds,
        connections,
        firstNumber,
        requestsMax,
      });
    }),
  );
  const refused = results.find((result) => result.refused !== undefined)?.refused;
  if (refused !== undefined) throw new Error(`${side.name} refused a request: ${refused}`);
}

async function look({ postgresPid }: Tools, side: GranarySide): Promise<Record<string, ProcessMemory>> {
  await settle([side], postgresPid);
  const memory: Record<string, ProcessMemory> = {};
  for (const { process, child } of side.children) memory[process] = await child.memory();
  memory.postgres = { resident: postgresUsage(postgresPid, side.prefix).memoryMib };
  return memory;
}

/** Formats the memory of each process of each side before and after. */
export function memoryGrowthLines(results: Record<string, Growth>): string[] {
  const cells = ({ before, after }: Growth['processes'][string]) =>
    (['resident', 'heap', 'external'] as const).map((field) => {
      const [then, now] = [before[field], after[field]];
      if (then === undefined || now === undefined) return '';
      const growth = now - then;
      return `${then.toFixed(1)} ${growth < 0 ? '-' : '+'} ${Math.abs(growth).toFixed(1)}`;
    });
  const rows = Object.entries(results).flatMap(([side, { requests, seconds, processes }]) =>
    Object.entries(processes).map(([name, memory], i) => [
      `${side}, ${name}`,
      ...cells(memory),
      i === 0 ? `${requests.toLocaleString('en-US')} requests in ${seconds.toFixed(0)} s` : '',
    ]),
  );
  const header = ['', 'resident MiB', 'heap MiB', 'external MiB', ''];
  return ['', `${memoryTitle} (wanted: + ${wantedMib} MiB at most)`, ...table([header, ...rows])];
}
