import { createHash } from 'node:crypto';
import { createReadStream, mkdirSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { runChild } from '../child.mjs';

const architectures = { x64: 'amd64', arm64: 'arm64' };
const mediaType = (name) => `application/vnd.oci.image.${name}.v1+json`;

/** Archives a folder so that the same files give the same bytes: sorted, of root, without times. GNU tar. */
async function tar(folder, file, entries = ['.']) {
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

async function digestOf(file) {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}

/**
 * Writes an image of `layers` (folders, the lowest first) to `file`: an OCI layout with the index that Docker reads
 * too, so `docker load`, `podman load` and `ctr images import` take it. `config` is its run configuration, `reference`
 * its name with a tag. Uses the folder `work`. Returns `{digest, bytes}`: of its manifest, and of the layers together.
 */
export async function writeImage(file, { reference, config, layers, work }) {
  const layout = path.join(work, 'layout');
  const blobs = path.join(layout, 'blobs/sha256');
  mkdirSync(blobs, { recursive: true });
  const store = (type, value) => {
    const text = JSON.stringify(value);
    const digest = createHash('sha256').update(text).digest('hex');
    writeFileSync(path.join(blobs, digest), text);
    return { mediaType: type, digest: `sha256:${digest}`, size: Buffer.byteLength(text) };
  };
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
  const write = (name, value) => writeFileSync(path.join(layout, name), JSON.stringify(value));
  write('index.json', {
    schemaVersion: 2,
    mediaType: mediaType('index'),
    manifests: [{ ...manifest, platform, annotations }],
  });
  write('oci-layout', { imageLayoutVersion: '1.0.0' });
  const pathOf = ({ digest }) => `blobs/sha256/${digest.slice('sha256:'.length)}`;
  write('manifest.json', [{ Config: pathOf(run), RepoTags: [reference], Layers: stored.map(pathOf) }]);
  await tar(layout, file, ['blobs', 'index.json', 'manifest.json', 'oci-layout']);
  return { digest: manifest.digest, bytes: stored.reduce((sum, { size }) => sum + size, 0) };
}

/** The same of the files of one folder. */
export async function writeFolderImage(file, { reference, config, folder }) {
  const work = mkdtempSync(path.join(os.tmpdir(), 'granary-image-'));
  try {
    return await writeImage(file, { reference, config, layers: [folder], work });
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

// deploy/kube/build.sh calls it with a file, a name, the path of the program and a folder.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, reference, program, folder] = process.argv.slice(2);
  await writeFolderImage(file, { reference, config: { Entrypoint: [program] }, folder });
}
