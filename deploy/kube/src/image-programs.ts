import path from 'node:path';
import { pathToFileURL } from 'node:url';

/** The members of an image's `config` that say how it is run. */
export interface RunConfig {
  Entrypoint?: string[];
  Env?: string[];
  WorkingDir?: string;
}

/** A written image: the digest of its manifest, and the size of its layers together. */
export interface WrittenImage {
  digest: string;
  bytes: number;
}

interface ImageProgram {
  buildImage(root: string, target: { output: string; reference: string }): Promise<WrittenImage>;
}

/** A written release: paths in its folder, the name of its image with the tag, and the digest of that. */
export interface WrittenRelease {
  files: { imageArchive: string; chart: string; minimalValues: string };
  reference: string;
  digest: string;
}

interface ReleaseProgram {
  writeRelease(root: string, target: { output: string }): Promise<WrittenRelease>;
}

interface ArchiveProgram {
  writeFolderImage(
    file: string,
    image: { reference: string; config: RunConfig; folder: string },
  ): Promise<WrittenImage>;
}

/** The checkout of this program. */
const checkout = path.join(__dirname, '../../..');

/** The scripts also run without a build, so they are loaded as files. */
const load = (file: string): Promise<unknown> => import(pathToFileURL(path.join(checkout, 'scripts', file)).href);

/** Builds the image of a built checkout, which may be of another release: its own program says what is in it. */
export async function buildImage(root: string, target: { output: string; reference: string }): Promise<WrittenImage> {
  const program = (await load('image.mjs')) as ImageProgram;
  return program.buildImage(root, target);
}

/** Writes the release of a built checkout into a new folder, as `npm run release` does. */
export async function writeRelease(root: string, target: { output: string }): Promise<WrittenRelease> {
  const program = (await load('release.mjs')) as ReleaseProgram;
  return program.writeRelease(root, target);
}

/** Writes an image with one layer, the files of a folder, to an archive. */
export async function writeFolderImage(
  file: string,
  image: { reference: string; config: RunConfig; folder: string },
): Promise<WrittenImage> {
  const program = (await load('image/archive.mjs')) as ArchiveProgram;
  return program.writeFolderImage(file, image);
}
