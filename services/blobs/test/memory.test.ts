import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request as send, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { testDatabase } from '@granary/testing/database';
import { forkProgram } from '@granary/testing/programs';
import { testBucket } from '@granary/testing/s3-bucket';
import { describeWith, minioForTests } from '@granary/testing/stack';
import { isLong, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { secret } from './support/bench';

const mebibyte = 1024 * 1024;
const sizeMebibytes = isLong ? 1024 : 128;
/**
 * Each may take 200 MiB. What a built service takes when it is idle, less than 110 MiB, is not looked at here, because
 * a process that runs from source holds the compiler as well.
 */
const growthMaxBytes = 90 * mebibyte;

function* blocks(): Generator<Buffer> {
  // Each its own bytes, so that a block in the wrong place is noticed.
  for (let at = 0; at < sizeMebibytes; at++) yield Buffer.alloc(mebibyte, `granary ${at} `);
}

describeWith(describe, 'minio')('on S3', () => {
  const children: ChildProcess[] = [];
  afterAll(async () => {
    for (const child of children) {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    }
  });

  async function start<T>(environment: Record<string, string>): Promise<{ child: ChildProcess; said: T }> {
    const env = { ...process.env, ...environment };
    const child = await forkProgram(join(__dirname, 'support/transfer-process.ts'), [], { env });
    children.push(child);
    return { child, said: ((await once(child, 'message')) as [T])[0] };
  }
  async function peakOf(child: ChildProcess): Promise<number> {
    const answer = once(child, 'message');
    child.send('figures');
    return ((await answer) as [{ peakBytes: number }])[0].peakBytes;
  }
  const responseOf = async (request: ReturnType<typeof send>) =>
    ((await once(request, 'response')) as [IncomingMessage])[0];

  test(
    `${sizeMebibytes} MiB flow in and out, and neither the gateway nor the service holds them`,
    async () => {
      const { settings } = testBucket(await minioForTests());
      const environment = { DATABASE_URL: (await testDatabase()).url, INTERNAL_SECRET: secret, ...settings };
      const service = await start<{ address: string }>({ ...environment, TEST_SERVICE_ADDRESS: 'none' });
      const gateway = await start<{ port: number }>({ ...environment, TEST_SERVICE_ADDRESS: service.said.address });
      const open = (method: string, headers: Record<string, string> = {}) =>
        send({
          host: '127.0.0.1',
          port: gateway.said.port,
          method,
          agent: false,
          headers: { 'x-blob-id': 'large', 'content-type': 'video/mp4', ...headers },
        });
      const [idleService, idleGateway] = [await peakOf(service.child), await peakOf(gateway.child)];
      const hash = createHash('sha256');
      const upload = open('POST', { 'content-length': String(sizeMebibytes * mebibyte) });
      const answering = responseOf(upload);
      Readable.from(
        (function* hashed() {
          for (const block of blocks()) {
            hash.update(block);
            yield block;
          }
        })(),
      ).pipe(upload);
      const answer = Buffer.concat(await (await answering).toArray()).toString();
      expect(JSON.parse(answer)).toMatchObject({ blob_id: 'large', status: 'Completed' });

      const download = open('GET');
      download.end();
      const received = createHash('sha256');
      for await (const chunk of (await responseOf(download)) as AsyncIterable<Buffer>) received.update(chunk);
      expect(received.digest('hex')).toBe(hash.digest('hex'));
      expect((await peakOf(service.child)) - idleService).toBeLessThan(growthMaxBytes);
      expect((await peakOf(gateway.child)) - idleGateway).toBeLessThan(growthMaxBytes);
    },
    sizedLimitMs(limitMs(600_000)),
  );
});
