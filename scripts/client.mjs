import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChild } from './child.mjs';
import { messageOf } from './errors.mjs';
import { npm } from './npm.mjs';
import { readIfThere } from './read-if-there.mjs';

const root = path.dirname(import.meta.dirname);
const client = path.join(root, 'services/client');

/**
 * Compiles the client library, if its sources have changed, to the modules and declarations that its package has.
 * Unlike the services it is no CommonJS, and its types are for others. Throws an error with what the compiler found.
 */
export async function buildClient() {
  const compiler = path.join(root, 'node_modules/typescript');
  const hash = createHash('sha256');
  const sources = readdirSync(path.join(client, 'src'), { recursive: true, encoding: 'utf8' }).sort();
  const inputs = [
    import.meta.filename,
    path.join(compiler, 'package.json'),
    path.join(root, 'tsconfig.base.json'),
    path.join(client, 'tsconfig.json'),
    ...sources.filter((name) => name.endsWith('.ts')).map((name) => path.join(client, 'src', name)),
  ];
  for (const file of inputs) hash.update(`${path.relative(root, file)}\n`).update(readFileSync(file));
  const digest = hash.digest('hex');
  const dist = path.join(client, 'dist');
  const stamp = path.join(dist, '.stamp');
  if (readIfThere(stamp) === digest) return;
  const staging = mkdtempSync(path.join(root, 'node_modules/.granary-client-'));
  try {
    const args = [path.join(compiler, 'bin/tsc'), '-p', client, '--outDir', staging];
    const { code, output } = await runChild(process.execPath, args, { cwd: root });
    if (code !== 0) throw new Error(`the client does not compile:\n${output.trim()}`);
    writeFileSync(path.join(staging, '.stamp'), digest);
    if (existsSync(dist)) rmSync(dist, { recursive: true });
    renameSync(staging, dist);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Builds the package of the client into a folder, as it is published. Returns its file. @param {string} folder */
export async function packClient(folder) {
  await buildClient();
  await npm(root, ['pack', '--workspace=services/client', '--pack-destination', folder]);
  const { version } = JSON.parse(readFileSync(path.join(client, 'package.json'), 'utf8'));
  return path.join(folder, `granary-client-${version}.tgz`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    console.log(await packClient(path.resolve(process.argv[2] ?? '.')));
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
