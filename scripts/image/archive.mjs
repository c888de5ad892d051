import { createHash } from 'node:crypto';
import { createReadStream, mkdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { runChild } from '../child.mjs';
import { withFolder } from '../temporary-folder.mjs';

/**
 * @typedef {{ mediaType: string, digest: string, size: number }} Descriptor How an image names one of its blobs.
 * @typedef {{ reference: string, config: object }} Image Its name with a tag, and its run configuration.
 */

/** @type {Partial<Record<NodeJS.Architecture, string>>} */
const architectures = { x64: 'amd64', arm64: 'arm64' };
/** @param {string} name */
const mediaType = (name) => `application/vnd.oci.image.${name}.v1+json`;

/**
 * Archives a folder so that the same files give the same bytes: sorted, of root, without times. GNU tar.
 * @param {string} folder @param {string} file @param {string[]} [entries]
 */
export async function tar(folder, file, entries = ['.']) {
  const fixed = [
    '--format=gnu',
    '--sort=name',
    '--mtime=@0',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--mode=u=rwX,go=rX',
  ];
  const { code, output } = await runChild('tar', [...fixed, '-C', folder, '-cf', file, ...entries]);
  if (code !== 0) throw new Error(`tar of ${folder} failed: ${output}`);
}

/** The SHA-256 of a file in hexadecimal. @param {string} file */
export async function digestOf(file) {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}

/**
 * Writes an image of `layers` (folders, the lowest first) to `file`: an OCI layout with the index that Docker reads
 * too, so `docker load`, `podman load` and `ctr images import` take it. Uses the folder `work`. Returns the digest of
 * the manifest, and how many bytes the layers have together.
 * @param {string} file @param {Image & { layers: string[], work: string }} image
 */
export async function writeImage(file, { reference, config, layers, work }) {
  const layout = path.join(work, 'layout');
  const blobs = path.join(layout, 'blobs/sha256');
  mkdirSync(blobs, { recursive: true });
  /** @type {(type: string, value: object) => Descriptor} */
  const store = (type, value) => {
    const text = JSON.stringify(value);
    const digest = createHash('sha256').update(text).digest('hex');
    writeFileSync(path.join(blobs, digest), text);
    return { mediaType: type, digest: `sha256:${digest}`, size: Buffer.byteLength(text) };
  };
  /** @type {Descriptor[]} */
  const stored = [];
  for (const folder of layers) {
    const staging = path.join(work, 'layer.tar');
    await tar(folder, staging);
    const digest = await digestOf(staging);
    const { size } = statSync(staging);
    renameSync(staging, path.join(blobs, digest));
    stored.push({ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: `sha256:${digest}`, size });
  }
  const platform = { architecture: architectures[process.arch], os: 'linux' };
  const rootfs = { type: 'layers', diff_ids: stored.map(({ digest }) => digest) };
  const run = store(mediaType('config'), { created: '1970-01-01T00:00:00Z', ...platform, config, rootfs });
  const manifest = store(mediaType('manifest'), {
    schemaVersion: 2,
    mediaType: mediaType('manifest'),
    config: run,
    layers: stored,
  });
  const annotations = {
    'io.containerd.image.name': reference,
    'org.opencontainers.image.ref.name': reference.slice(reference.lastIndexOf(':') + 1),
  };
  /** @type {(name: string, value: object) => void} */
  const write = (name, value) => writeFileSync(path.join(layout, name), JSON.stringify(value));
  write('index.json', {
    schemaVersion: 2,
    mediaType: mediaType('index'),
    manifests: [{ ...manifest, platform, annotations }],
  });
  write('oci-layout', { imageLayoutVersion: '1.0.0' });
  const pathOf = (/** @type {Descriptor} */ { digest }) => `blobs/sha256/${digest.slice('sha256:'.length)}`;
  write('manifest.json', [{ Config: pathOf(run), RepoTags: [reference], Layers: stored.map(pathOf) }]);
  await tar(layout, file, ['blobs', 'index.json', 'manifest.json', 'oci-layout']);
  return { digest: manifest.digest, bytes: stored.reduce((sum, { size }) => sum + size, 0) };
}

/** The same of the files of one folder. @param {string} file @param {Image & { folder: string }} image */
export async function writeFolderImage(file, { reference, config, folder }) {
  return withFolder(path.join(os.tmpdir(), 'granary-image-'), (work) =>
    writeImage(file, { reference, config, layers: [folder], work }),
  );
}

// deploy/kube/build.sh calls it with a file, a name, the path of the program and a folder.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, reference, program, folder] = process.argv.slice(2);
  if (!file || !reference || !program || !folder) throw new Error('A file, a name, a program and a folder are needed.');
  await writeFolderImage(file, { reference, config: { Entrypoint: [program] }, folder });
}
