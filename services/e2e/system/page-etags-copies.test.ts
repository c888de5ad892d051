import { size, sizedLimitMs } from '@granary/testing/size';
import { describeWith } from '@granary/testing/stack';
import { limitMs } from '@granary/testing/speed';
import { newApp } from '../support/granary';
import { prepareRun, readUnderWrites } from '../support/page-readers';
import { startTwoOfEach, type TwoOfEach } from './rolling';
import { Balanced } from './rolling-client';

const reads = size({ run: 2_000, long: 20_000 });

describeWith(
  describe,
  'kafka',
  'minio',
)('ETags of public pages from two copies of every service', () => {
  let copies: TwoOfEach | undefined;
  beforeAll(async () => {
    copies = await startTwoOfEach();
    const gateways = new Balanced(copies.urls);
    await gateways.whenAllReady();
    await gateways.stop();
  }, limitMs(120_000));
  afterAll(() => copies?.stop());

  test(
    `never hide a write that another copy acknowledged: ${reads} reads under 8 writers`,
    async () => {
      const { urls } = copies!;
      const app = await newApp({ url: urls[0]! });
      const run = { app, urls, reads, writers: 8, readers: 12 };
      await prepareRun(run);
      expect(await readUnderWrites(run)).toBeGreaterThan(reads / 40);
    },
    sizedLimitMs(limitMs(300_000)),
  );
});
