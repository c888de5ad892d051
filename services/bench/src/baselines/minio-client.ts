import { Readable } from 'node:stream';
import { Client } from 'minio';
import { serve } from '../child.mjs';

/** The simplest transfer of bytes: the plain `minio` client, without metadata, checksums, commits or app keys. */
const chunkBytes = 64 * 1024;
let client;
let bucket;
let lastNumber = 0;

/** A body in chunks as from a socket, with different bytes each time. */
function* chunksOf(sizeBytes, number) {
  const chunk = Buffer.alloc(chunkBytes, 'All work and no play. ');
  const first = Buffer.from(chunk);
  first.writeUInt32LE(number, 0);
  for (let at = 0; at < sizeBytes; at += chunkBytes) yield at === 0 ? first : chunk;
}

async function upload(sizeBytes) {
  const number = ++lastNumber;
  const key = `object-${number}`;
  await client.putObject(bucket, key, Readable.from(chunksOf(sizeBytes, number), { objectMode: false }), sizeBytes);
  return key;
}

async function download(key) {
  let sizeBytes = 0;
  for await (const chunk of await client.getObject(bucket, key)) sizeBytes += chunk.length;
  return sizeBytes;
}

/** Runs `work` in a loop on `connections` connections. Returns `{requests, elapsedMs}`. */
async function repeat(work, { connections, seconds, requestsMax }) {
  const startedMs = performance.now();
  let started = 0;
  const one = async () => {
    while (started < requestsMax && performance.now() - startedMs < seconds * 1000) {
      started++;
      await work();
    }
  };
  await Promise.all(Array.from({ length: connections }, one));
  return { requests: started, elapsedMs: performance.now() - startedMs };
}

serve({
  start: async ({ endpoint, accessKey, secretKey }) => {
    const { hostname, port } = new URL(endpoint);
    client = new Client({ endPoint: hostname, port: Number(port), useSSL: false, accessKey, secretKey });
    bucket = 'bench-client';
    await client.makeBucket(bucket);
  },
  upload: ({ sizeBytes, ...load }) => repeat(() => upload(sizeBytes), load),
  download: async ({ sizeBytes, ...load }) => {
    const key = await upload(sizeBytes);
    return repeat(async () => {
      const gotBytes = await download(key);
      if (gotBytes !== sizeBytes) throw new Error(`${gotBytes} bytes of ${sizeBytes} came back.`);
    }, load);
  },
});
