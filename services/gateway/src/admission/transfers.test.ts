import { Transfers } from './transfers';

const keys = (name: string) => ({ app: name, address: name });

// A file of its own: a deadline that another test has begun by the real clock would end none of these.
test('an upload that is committed keeps its slot, one whose body does not come gives way', async () => {
  jest.useFakeTimers();
  try {
    const transfers = new Transfers({
      STREAM_CONCURRENCY: 2,
      STREAM_APP_PERCENT: 100,
      STREAM_CLIENT_PERCENT: 100,
      QUEUE_TIMEOUT_MS: 0,
      UPLOAD_TIMEOUT_MS: 60_000,
      UPLOAD_GRACE_MS: 60_000,
      DOWNLOAD_GRACE_MS: 60_000,
      EXPORTS: 8,
      EXPORTS_PER_APP: 2,
      IMPORTS: 2,
      IMPORTS_PER_APP: 2,
      TRANSFER_MIN_BYTES_PER_SECOND: 1,
    });
    const cancelled: string[] = [];
    const refusedNames: string[] = [];
    const never = new Promise<never>(() => {});
    const begin = (name: string, isComplete: boolean) => {
      const uploaded = transfers.upload(keys(name), (upload) => {
        upload.onCancel(() => cancelled.push(name));
        upload.start();
        if (isComplete) upload.ended();
        return never;
      });
      uploaded.catch(() => refusedNames.push(name));
    };
    begin('committed', true);
    begin('stalled', false);
    await jest.advanceTimersByTimeAsync(10_000);
    begin('next', true);
    await jest.advanceTimersByTimeAsync(10_000);
    begin('refused', true);
    await jest.advanceTimersByTimeAsync(10_000);
    expect([cancelled, refusedNames]).toEqual([['stalled'], ['refused']]);
  } finally {
    jest.useRealTimers();
  }
});
