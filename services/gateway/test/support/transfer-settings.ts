import type { TransferSettings } from '../../src/admission/transfers';

/** Limits of transfers with few places for exports and imports, and long clocks. */
export const transferSettings: TransferSettings = {
  STREAM_CONCURRENCY: 10,
  STREAM_APP_PERCENT: 100,
  STREAM_CLIENT_PERCENT: 100,
  QUEUE_TIMEOUT_MS: 500,
  UPLOAD_TIMEOUT_MS: 60_000,
  UPLOAD_GRACE_MS: 60_000,
  DOWNLOAD_GRACE_MS: 60_000,
  TRANSFER_MIN_BYTES_PER_SECOND: 1_024,
  EXPORTS: 3,
  EXPORTS_PER_APP: 2,
  IMPORTS: 2,
  IMPORTS_PER_APP: 2,
};
