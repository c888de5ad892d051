import { newDocumentId } from '@granary/shared/ids';
import { openS3Store } from '../src/stores/s3/store';
import { testBucket } from '@granary/testing/s3-bucket';
import { describeWith, minioForTests } from '@granary/testing/stack';
import { eventuallyHolds } from '@granary/testing/eventually';
import { installationId } from '../src/objects/objects';
import { startOwnMinio } from '../../e2e/support/own-minio';
import { startBench, useStore } from './support/bench';
import { blobsSuite } from './support/suite';

describeWith(describe, 'minio')('on S3', () => {
  useStore(async () => testBucket(await minioForTests()));
  blobsSuite();

  test('objects that nobody knows are swept, those of blobs never, not even by an impatient copy', async () => {
    const bench = await startBench({ SWEEP_EVERY_MS: 20, SWEEP_AGE_MS: -60_000 });
    try {
      const { S3_ENDPOINT, S3_BUCKET, S3_ACCESS_KEY, S3_SECRET_KEY } = bench.config;
      const store = await openS3Store({
        endpoint: S3_ENDPOINT!,
        bucket: S3_BUCKET!,
        accessKey: S3_ACCESS_KEY!,
        secretKey: S3_SECRET_KEY!,
        region: 'us-east-1',
        prefix: '',
        owner: await installationId(bench.pool),
      });
      const blobs: string[] = [];
      for (let at = 0; at < 20; at++) {
        const blobId = newDocumentId();
        const answer = await bench.upload({ 'content-type': 'text/plain' }, Buffer.from(`blob ${at}`), { blobId });
        expect(answer.status).toBe(202);
        blobs.push(blobId);
        // As a process leaves it that was killed between the object and everything else.
        await (await store.receive([Buffer.from('orphan')] as unknown as AsyncIterable<Buffer>)).keep();
      }
      await eventuallyHolds(
        () => bench.files(),
        (files) => files.length === 20,
      );
      for (const [at, blobId] of blobs.entries()) expect((await bench.read(blobId)).body.toString()).toBe(`blob ${at}`);
    } finally {
      await bench.stop();
    }
  });

  test('an upload that stood still until others may have given it up is refused, and never committed', async () => {
    const minio = await startOwnMinio();
    useStore(() => Promise.resolve(testBucket(minio)));
    const bench = await startBench();
    const now = performance.now.bind(performance);
    let aheadMs = 0;
    const clock = jest.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs);
    try {
      minio.freeze();
      const uploading = bench.upload({ 'content-type': 'text/plain' }, Buffer.from('x'));
      await eventuallyHolds(
        async () => (await bench.pool.query(`select from blob where state = 'pending'`)).rowCount,
        (count) => count === 1,
      );
      aheadMs = bench.config.PENDING_GRACE_MS;
      minio.thaw();
      expect((await uploading).status).toBe(503);
      expect(bench.commits.uploads).toEqual([]);
      expect((await bench.pool.query('select from blob')).rowCount).toBe(0);
      await eventuallyHolds(
        () => bench.files(),
        (files) => files.length === 0,
      );
    } finally {
      clock.mockRestore();
      await bench.stop();
      await minio.stop();
    }
  });
});
