import path from 'node:path';
import { settle } from './measure.mjs';
import { processorTimeUs, startProcess } from './processes.mjs';
import { median, table } from './report.mjs';
import { startSide } from './sides.mjs';

const mebibyte = 1024 * 1024;
/** The limit of bytes in one direction per run, because they fill the disk. */
const runMib = 600;
const sizes = [
  { mib: 1, connections: 8 },
  { mib: 100, connections: 2 },
];
const directions = ['upload', 'download'];
/** Relative to the client's rate. */
const wanted = { upload: 0.8, download: 0.8 };
const wantedGatewayMs = 2;
/** Until V8 has optimised the code: an upload then costs the gateway half as much as the first hundred. */
const warmUp = { seconds: 10, mib: 1_500 };

export const objectsTitle = 'objects: blobs on MinIO, beside the minio client alone';

/**
 * Starts a MinIO, Granary in two processes with its blobs there, and a process with only the `minio` client. Both are
 * measured alternately. Returns, for each direction and size, `{granary, client, ratio}`: medians of `{mibPerSecond,
 * cpuMsPerMib}`, the latter by process, and of the ratio of rates per round.
 */
export async function measureObjects(tools, { rounds, seconds }) {
  const { directory, started, postgres } = tools;
  const minio = startProcess('minio.mjs');
  started(minio);
  const where = await minio.call('start', path.join(directory, 'minio'));
  const client = startProcess('baselines/minio-client.mjs');
  started(client);
  await client.call('start', where);
  const objectStore = {
    OBJECT_STORE: 's3',
    S3_ENDPOINT: where.endpoint,
    S3_BUCKET: 'bench-granary',
    S3_ACCESS_KEY: where.accessKey,
    S3_SECRET_KEY: where.secretKey,
  };
  const side = await startSide('split', { as: 'objects', postgres, directory, started, objectStore });
  const bare = { pids: { client: client.pid } };

  const measured = [];
  for (const { mib, connections } of sizes) {
    const requests = side.blobRequests(mib * mebibyte);
    for (const direction of directions) {
      const own = await requests[direction]();
      const load = { connections, requestsMax: Math.ceil(runMib / mib) };
      const granary = (limits) => tools.load.call('run', { ...own, port: side.port, ...load, ...limits });
      const alone = (limits) => client.call(direction, { sizeBytes: mib * mebibyte, ...load, ...limits });
      const results = [];
      const requestsMax = Math.ceil(warmUp.mib / mib);
      await granary({ ...numbered(side, { requestsMax }, warmUp.seconds), requestsMax });
      await alone({ seconds: warmUp.seconds, requestsMax });
      for (let round = 0; round < rounds; round++) {
        await settle([side], tools.postgresPid);
        const ours = await observe(side, mib, () => granary(numbered(side, load, seconds)));
        const theirs = await observe(bare, mib, () => alone({ seconds }));
        results.push({ ours, theirs, ratio: ours.mibPerSecond / theirs.mibPerSecond });
      }
      measured.push({
        direction,
        mib,
        connections,
        granary: together(results.map(({ ours }) => ours)),
        client: together(results.map(({ theirs }) => theirs)),
        ratio: median(results.map(({ ratio }) => ratio)),
      });
    }
  }
  return measured;
}

/** Bodies different from all earlier uploads: equal ones are stored once. */
function numbered(side, { requestsMax }, seconds) {
  const firstNumber = side.nextNumber;
  side.nextNumber += requestsMax;
  return { firstNumber, seconds };
}

/** Runs it, and measures the processor time of `pids`. */
async function observe({ pids }, mib, run) {
  const look = () => Object.entries(pids).map(([name, pid]) => [name, processorTimeUs(pid)]);
  const before = Object.fromEntries(look());
  const { requests, elapsedMs, refused } = await run();
  if (refused !== undefined) throw new Error(`A request was refused: ${refused}`);
  const movedMib = requests * mib;
  const cpuMsPerMib = look().map(([name, timeUs]) => [name, (timeUs - before[name]) / 1000 / movedMib]);
  return { mibPerSecond: (movedMib * 1000) / elapsedMs, cpuMsPerMib: Object.fromEntries(cpuMsPerMib) };
}

function together(rounds) {
  const names = Object.keys(rounds[0].cpuMsPerMib);
  return {
    mibPerSecond: median(rounds.map(({ mibPerSecond }) => mibPerSecond)),
    cpuMsPerMib: Object.fromEntries(
      names.map((name) => [name, median(rounds.map(({ cpuMsPerMib }) => cpuMsPerMib[name]))]),
    ),
  };
}

/** Formats the table of results. */
export function objectsLines(measured) {
  const cpu = ({ cpuMsPerMib }) =>
    Object.entries(cpuMsPerMib)
      .map(([name, ms]) => `${name} ${ms.toFixed(1)}`)
      .join(' + ');
  const rows = measured.map(({ direction, mib, connections, granary, client, ratio }) => [
    `${direction} of ${mib} MiB, ${connections} at once`,
    granary.mibPerSecond.toFixed(0),
    client.mibPerSecond.toFixed(0),
    ratio.toFixed(2),
    `${cpu(granary)}; ${cpu(client)}`,
  ]);
  const header = ['', 'MiB/s', 'client MiB/s', 'x client', 'CPU ms per MiB'];
  const wishes = directions.map((direction) => `${direction}s at least ${wanted[direction]} x client`);
  return [
    '',
    `${objectsTitle} (wanted: ${wishes.join(', ')}, gateway at most ${wantedGatewayMs} ms)`,
    ...table([header, ...rows]),
  ];
}
