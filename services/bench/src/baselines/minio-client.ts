import { Readable } from 'node:stream';
import { Client } from 'minio';
import { serve } from '../child';

/** The simplest transfer of bytes: the plain `minio` client, without metadata, checksums, commits or app keys. */
const chunkBytes = 64 * 1024;
let client: Client;
let bucket: string;
let lastNumber = 0;

interface Load {
  connections: number;
  seconds: number;
  requestsMax: number;
}

/** A body in chunks as from a socket, with different bytes each time. */
function* chunksOf(sizeBytes: number, number: number): Generator<Buffer> {
  const chunk = Buffer.alloc(chunkBytes, 'All work and no play. ');
  const first = Buffer.from(chunk);
  first.writeUInt32LE(number, 0);
  for (let from = 0; from < sizeBytes; from += chunkBytes) yield from === 0 ? first : chunk;
}

async function upload(sizeBytes: number): Promise<string> {
  const number = ++lastNumber;
  const key = `object-${number}`;
  await client.putObject(bucket, key, Readable.from(chunksOf(sizeBytes, number), { objectMode: false }), sizeBytes);
  return key;
}

async function download(key: string): Promise<number> {
  let sizeBytes = 0;
  for await (const chunk of await client.getObject(bucket, key)) sizeBytes += (chunk as Buffer).length;
  return sizeBytes;
}

/** Runs `work` in a loop on `connections` connections. */
async function repeat(work: () => Promise<unknown>, { connections, seconds, requestsMax }: Load) {
  const startedMs = performance.now();
  let requests = 0;
  const one = async () => {
    while (requests < requestsMax && performance.now() - startedMs < seconds * 1000) {
      requests++;
      await work();
    }
  };
  await Promise.all(Array.from({ length: connections }, one));
  return { requests, elapsedMs: performance.now() - startedMs };
}

const calls = {
  start: async ({ endpoint, accessKey, secretKey }: Record<'endpoint' | 'accessKey' | 'secretKey', string>) => {
    const { hostname, port } = new URL(endpoint);
    client = new Client({ endPoint: hostname, port: Number(port), useSSL: false, accessKey, secretKey });
    bucket = 'bench-client';
    await client.makeBucket(bucket);
  },
  upload: ({ sizeBytes, ...load }: Load & { sizeBytes: number }) => repeat(() => upload(sizeBytes), load),
  download: async ({ sizeBytes, ...load }: Load & { sizeBytes: number }) => {
    const key = await upload(sizeBytes);
    return repeat(async () => {
      const gotBytes = await download(key);
      if (gotBytes !== sizeBytes) throw new Error(`${gotBytes} bytes of ${sizeBytes} came back.`);
    }, load);
  },
};

export type MinioClientCalls = typeof calls;

serve(calls);
