import { copyFileSync, mkdirSync, readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { messageOf } from './errors.mjs';
import { prepare } from './launch.mjs';
import { withFolder } from './temporary-folder.mjs';

const usage = `Builds the image of all services, without Docker, a registry or a daemon: an archive that \`docker load\`,
\`podman load\` and \`ctr images import\` take. The same checkout gives the same bytes on the same machine. Needs Linux, GNU tar
and ldd. deploy/image/Dockerfile makes an image with the same content where there is a builder.

  npm run image -- [--output granary.tar] [--name granary:version]
`;

/** The run configuration of the image. Kubernetes overrides the arguments only. @param {number} userId */
export const runConfig = (userId) => ({
  User: `${userId}:${userId}`,
  // Not an argument of the entrypoint, which would override the NODE_OPTIONS of a deployment.
  Env: ['PATH=/usr/bin', 'NODE_ENV=production', 'NODE_OPTIONS=--v8-pool-size=0'],
  Entrypoint: ['/usr/bin/node', '/app/granary.mjs'],
  Cmd: ['--help'],
  WorkingDir: '/app',
});

/**
 * Builds the image of a built checkout, which may be of another release: its own program says which files are in it.
 * Returns the digest and the size of the image, see `writeImage`.
 * @param {string} root
 * @param {{ output: string, reference: string, list?: string }} image the file to write, the name of the image with a
 * tag, and a file for a copy of the list of packages that is in it
 */
export async function buildImage(root, { output, reference, list }) {
  const { stageApplication } = await import(pathToFileURL(path.join(root, 'scripts/image/application.mjs')).href);
  const { stageRuntime, userId } = await import('./image/runtime.mjs');
  const { writeImage } = await import('./image/archive.mjs');
  return withFolder(path.join(os.tmpdir(), 'granary-image-'), async (work) => {
    const [system, application] = [path.join(work, 'system'), path.join(work, 'application')];
    mkdirSync(system);
    const runtime = await stageRuntime(system);
    await stageApplication(root, path.join(application, 'app'), runtime);
    if (list !== undefined) copyFileSync(path.join(application, 'app/sbom.spdx.json'), list);
    const layers = [system, application];
    return writeImage(output, { reference, config: runConfig(userId), layers, work });
  });
}

/** Throws a sentence where `buildImage` cannot work. */
export function checkPlatform() {
  if (process.platform !== 'linux')
    throw new Error('Images can be built on Linux only; elsewhere use deploy/image/Dockerfile.');
}

async function main() {
  const { values } = parseArgs({
    options: { output: { type: 'string' }, name: { type: 'string' }, help: { type: 'boolean', short: 'h' } },
  });
  if (values.help) return void console.log(usage);
  checkPlatform();
  const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
  const here = process.env.INIT_CWD ?? process.cwd();
  await prepare('services/operator');
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const output = path.resolve(here, values.output ?? `granary-${version}.tar`);
  const reference = values.name ?? `granary:${version}`;
  const { digest, bytes } = await buildImage(root, { output, reference });
  console.log(`${output}: ${reference}, ${(bytes / 1e6).toFixed(1)} MB, ${digest}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await main();
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
