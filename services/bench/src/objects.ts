import path from 'node:path';
import type { MinioClientCalls } from './baselines/minio-client';
import { settle } from './measure';
import type { MinioCalls } from './minio';
import { processorTimeUs, startProcess } from './processes';
import { recordOf } from './records';
import { median, mediansByProcess, table } from './report';
import { startSide, type GranarySide, type Side } from './sides';
import type { Lengths, Tools } from './tools';

const mebibyte = 1024 * 1024;
/** The limit of bytes in one direction per run, because they fill the disk. */
const runMib = 600;
const sizes = [
  { mib: 1, connections: 8 },
  { mib: 100, connections: 2 },
];
const directions = ['upload', 'download'] as const;
/** The least ratios to the rate of the client. */
const wantedRatios = { upload: 0.8, download: 0.8 };
const wantedGatewayMs = 2;
/**
 * The warm-up lasts until V8 has optimised the code: an upload then costs the gateway half as much as one of the first
 * hundred.
 */
const warmUp = { seconds: 10, mib: 1_500 };

interface Transfer {
  mibPerSecond: number;
  /** Processor time by process. */
  cpuMsPerMib: Record<string, number>;
}

/**
 * The results of blobs of one size in one direction: medians of the rounds, and of the ratio of rates in each round.
 */
interface ObjectsResult {
  direction: (typeof directions)[number];
  mib: number;
  connections: number;
  granary: Transfer;
  client: Transfer;
  ratio: number;
}

interface Limits {
  seconds: number;
  requestsMax: number;
}

/** The counts that the transfers of either side return. */
interface Sent {
  requests: number;
  elapsedMs: number;
  refused?: string | undefined;
}

export const objectsTitle = 'objects: blobs on MinIO, beside the minio client alone';

/**
 * Starts a MinIO, Granary in two processes with its blobs there, and a process with only the `minio` client. Both are
 * measured alternately, in each direction and size.
 */
export async function measureObjects(tools: Tools, { rounds, seconds }: Lengths): Promise<ObjectsResult[]> {
  const { directory, onStart, postgres } = tools;
  const minio = startProcess<MinioCalls>('minio.js');
  onStart(minio);
  const where = await minio.call('start', path.join(directory, 'minio'));
  const client = startProcess<MinioClientCalls>('baselines/minio-client.js');
  onStart(client);
  await client.call('start', where);
  const objectStore = {
    OBJECT_STORE: 's3',
    S3_ENDPOINT: where.endpoint,
    S3_BUCKET: 'bench-granary',
    S3_ACCESS_KEY: where.accessKey,
    S3_SECRET_KEY: where.secretKey,
  };
  const side = await startSide('split', { as: 'objects', postgres, directory, onStart, objectStore });
  const bare = { pids: { client: client.pid } };

  const transfers: ObjectsResult[] = [];
  for (const { mib, connections } of sizes) {
    const requests = side.blobRequests(mib * mebibyte);
    for (const direction of directions) {
      const request = await requests[direction]();
      const granary = (limits: Limits) => {
        const firstNumber = nextNumbers(side, limits.requestsMax);
        return tools.load.call('run', { ...request, port: side.port, connections, firstNumber, ...limits });
      };
      const alone = (limits: Limits) => client.call(direction, { sizeBytes: mib * mebibyte, connections, ...limits });
      const results: Array<{ ours: Transfer; theirs: Transfer; ratio: number }> = [];
      const warmUpLimits = { seconds: warmUp.seconds, requestsMax: Math.ceil(warmUp.mib / mib) };
      const limits = { seconds, requestsMax: Math.ceil(runMib / mib) };
      await granary(warmUpLimits);
      await alone(warmUpLimits);
      for (let round = 0; round < rounds; round++) {
        await settle([side], tools.postgresPid);
        const ours = await observe(side, mib, () => granary(limits));
        const theirs = await observe(bare, mib, () => alone(limits));
        results.push({ ours, theirs, ratio: ours.mibPerSecond / theirs.mibPerSecond });
      }
      transfers.push({
        direction,
        mib,
        connections,
        granary: together(results.map(({ ours }) => ours)),
        client: together(results.map(({ theirs }) => theirs)),
        ratio: median(results.map(({ ratio }) => ratio)),
      });
    }
  }
  return transfers;
}

/** Returns the first number of bodies that differ from all earlier uploads: equal ones are stored once. */
function nextNumbers(side: GranarySide, count: number): number {
  const firstNumber = side.nextNumber;
  side.nextNumber += count;
  return firstNumber;
}

/** Calls `run`, and measures the processor time that `pids` take for it. */
async function observe({ pids }: Pick<Side, 'pids'>, mib: number, run: () => Promise<Sent>): Promise<Transfer> {
  const names = Object.keys(pids);
  const look = () => recordOf(names, (name) => processorTimeUs(pids[name]!) ?? NaN);
  const before = look();
  const { requests, elapsedMs, refused } = await run();
  if (refused !== undefined) throw new Error(`A request was refused: ${refused}`);
  const movedMib = requests * mib;
  const after = look();
  const cpuMsPerMib = recordOf(names, (name) => (after[name]! - before[name]!) / 1000 / movedMib);
  return { mibPerSecond: (movedMib * 1000) / elapsedMs, cpuMsPerMib };
}

function together(rounds: readonly Transfer[]): Transfer {
  return {
    mibPerSecond: median(rounds.map(({ mibPerSecond }) => mibPerSecond)),
    cpuMsPerMib: mediansByProcess(rounds.map(({ cpuMsPerMib }) => cpuMsPerMib)),
  };
}

/** Formats the table of results. */
export function objectsLines(transfers: ObjectsResult[]): string[] {
  const cpu = ({ cpuMsPerMib }: Transfer) =>
    Object.entries(cpuMsPerMib)
      .map(([name, ms]) => `${name} ${ms.toFixed(1)}`)
      .join(' + ');
  const rows = transfers.map(({ direction, mib, connections, granary, client, ratio }) => [
    `${direction} of ${mib} MiB, ${connections} at once`,
    granary.mibPerSecond.toFixed(0),
    client.mibPerSecond.toFixed(0),
    ratio.toFixed(2),
    `${cpu(granary)}; ${cpu(client)}`,
  ]);
  const header = ['', 'MiB/s', 'client MiB/s', 'x client', 'CPU ms per MiB'];
  const wishes = directions.map((direction) => `${direction}s at least ${wantedRatios[direction]} x client`);
  return [
    '',
    `${objectsTitle} (wanted: ${wishes.join(', ')}, gateway at most ${wantedGatewayMs} ms)`,
    ...table([header, ...rows]),
  ];
}
