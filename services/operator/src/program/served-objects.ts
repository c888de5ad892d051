import type { Say } from './progress';

/** An object store with the interface of S3 that serves the objects of a data directory. */
export interface ServedObjects {
  /** `http://host:port` */
  endpoint: string;
  accessKey: string;
  secretKey: string;
  bucket: string;
  /** Stops it, if it was started for this. */
  stop: () => Promise<void>;
}

/** Finds the MinIO that serves a folder, or starts one until `stop`. `directory` is the folder of its data. */
export type ServeObjects = (directory: string, say: Say, signal: AbortSignal) => Promise<ServedObjects>;
