import { createHash } from 'node:crypto';
import { open, readFile } from 'node:fs/promises';
import path from 'node:path';
import { ConfigError } from '@granary/shared/config';
import { z } from 'zod';

export const manifestFile = 'manifest.json';
const manifestSumFile = 'manifest.json.sha256';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.number().int().nonnegative();

/** The contents of a backup, as in `manifest.json`. */
const manifestSchema = z.object({
  format: z.literal(1),
  /** The release that created it. */
  granary: z.string(),
  postgres: z.object({ version: z.string(), systemIdentifier: z.string(), timeline: z.number().int() }),
  /** The kind of object store of the data directory. */
  objectStore: z.enum(['files', 'minio']),
  startedAt: z.iso.datetime(),
  /** The restore point in Postgres's log at which recovery stops. */
  cut: z.object({ at: z.iso.datetime(), restorePoint: z.string().regex(/^[a-z0-9-]{1,60}$/), lsn: z.string() }),
  /** Whether the files include `wallet-seed`. */
  hasSeed: z.boolean(),
  apps: count,
  blobs: z.object({ contents: count, sizeBytes: count }),
  /** Paths relative to the folder of the backup. */
  files: z.array(
    z.object({
      path: z.string().regex(/^[A-Za-z0-9._-]+(\/[A-Za-z0-9._-]+)*$/),
      sizeBytes: count,
      sha256,
    }),
  ),
});

export type Manifest = z.infer<typeof manifestSchema>;
export type ManifestFile = Manifest['files'][number];

/** Writes the manifest, and its SHA-256 in the format of `sha256sum --check`. */
export async function writeManifest(folder: string, manifest: Manifest): Promise<void> {
  const text = `${JSON.stringify(manifest, null, 2)}\n`;
  await writeSynced(path.join(folder, manifestFile), text);
  await writeSynced(path.join(folder, manifestSumFile), `${sumOf(text)}  ${manifestFile}\n`);
}

/** Reads and checks the manifest. Throws a ConfigError that describes the problem. */
export async function readManifest(folder: string): Promise<Manifest> {
  const file = path.join(folder, manifestFile);
  const [text, sum] = await Promise.all(
    [file, path.join(folder, manifestSumFile)].map((each) =>
      readFile(each, 'utf8').catch((error: unknown) => {
        throw new ConfigError(`${each} cannot be read: ${(error as Error).message}`, { cause: error });
      }),
    ),
  );
  if (sum!.split(' ')[0] !== sumOf(text!)) throw new ConfigError(`${file} is damaged: its SHA-256 differs.`);
  const parsed = manifestSchema.safeParse(JSON.parse(text!));
  if (!parsed.success)
    throw new ConfigError(`${file} was created by another release of Granary; restore it with that release.`);
  return parsed.data;
}

const sumOf = (text: string): string => createHash('sha256').update(text).digest('hex');

async function writeSynced(file: string, text: string): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}
