import { settle } from './measure.mjs';
import { postgresUsage } from './processes.mjs';
import { table } from './report.mjs';

/** Target for growth, in MiB per process. */
const wantedMib = 20;
/** The mix: shares of requests; connections in proportion to the cost of each. */
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
 * Sends a fifth of `requests` as a warm-up, then all of them: point reads, pages and inserts. Returns, by process,
 * `{before, after}` in MiB: `{resident, heap, external}` after a garbage collection; for Postgres the private memory of
 * its connections.
 */
export async function measureMemory(tools, side, requests) {
  await send(tools, side, Math.ceil(requests * warmUpShare));
  const before = await look(tools, side);
  const startedMs = performance.now();
  await send(tools, side, requests);
  const seconds = (performance.now() - startedMs) / 1000;
  const after = await look(tools, side);
  const processes = Object.keys(before).map((name) => [name, { before: before[name], after: after[name] }]);
  return { requests, seconds, processes: Object.fromEntries(processes) };
}

async function send({ load }, side, requests) {
  const results = await Promise.all(
    Object.entries(mix).map(([run, { share, connections, documents }]) => {
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

async function look({ postgresPid }, side) {
  await settle([side], postgresPid);
  const memory = {};
  for (const { process, child } of side.children) memory[process] = await child.call('memory');
  memory.postgres = { resident: postgresUsage(postgresPid, side.prefix).memoryMib };
  return memory;
}

/** Formats the memory of each process of each side before and after. */
export function memoryGrowthLines(results) {
  const cells = ({ before, after }) =>
    ['resident', 'heap', 'external'].map((field) => {
      if (before[field] === undefined) return '';
      const growth = after[field] - before[field];
      return `${before[field].toFixed(1)} ${growth < 0 ? '-' : '+'} ${Math.abs(growth).toFixed(1)}`;
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
