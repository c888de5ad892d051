import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Minio } from './server';

/** The endpoint and the keys of a running MinIO. */
export type MinioAccess = Pick<Minio, 'endpoint' | 'accessKey' | 'secretKey'>;

const accessFile = 'access.json';
const probeTimeoutMs = 2_000;

/** Stores the access to a directory's MinIO beside its data, for commands that work on a running stack. */
export async function keepMinioAccess(directory: string, access: MinioAccess): Promise<void> {
  const { endpoint, accessKey, secretKey } = access;
  const file = path.join(directory, accessFile);
  // writeFile does not change the mode of an existing file.
  await rm(file, { force: true });
  await writeFile(file, JSON.stringify({ endpoint, accessKey, secretKey }), { mode: 0o600 });
}

export const forgetMinioAccess = (directory: string): Promise<void> =>
  rm(path.join(directory, accessFile), { force: true });

/** The access to the running MinIO of a directory; undefined if none runs. */
export async function findMinioAccess(directory: string): Promise<MinioAccess | undefined> {
  const text = await readFile(path.join(directory, accessFile), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (text === undefined) return undefined;
  const access = JSON.parse(text) as MinioAccess;
  // A killed MinIO leaves the file behind.
  const answer = await fetch(`${access.endpoint}/minio/health/live`, { signal: AbortSignal.timeout(probeTimeoutMs) })
    .then((response) => response.ok)
    .catch(() => false);
  return answer ? access : undefined;
}
