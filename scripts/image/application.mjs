import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { npm } from '../npm.mjs';
import { listPackages } from './packages.mjs';

const services = ['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks'];
const scripts = ['bus-topics', 'dead-letters', 'ledger-verify', 'payouts'];
/** Files of packages that no program reads. */
const unread = /\.(d\.[cm]?ts|[cm]?ts|map|md|markdown|flow|tsbuildinfo)$|^\.package-lock\.json$/i;

/**
 * Puts the built services with their production packages into the folder `target`, as they are in the image:
 * `granary.mjs`, `services/`, `protos/`, `node_modules/` and `sbom.spdx.json`, with what else is in the image. `root`
 * is a built checkout.
 */
export async function stageApplication(root, target, others = []) {
  await installPackages(root, target);
  const granary = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const list = listPackages(path.join(target, 'node_modules/.package-lock.json'), granary, others);
  removeUnread(path.join(target, 'node_modules'));
  for (const name of [...services, 'shared']) {
    const [from, to] = [path.join(root, 'services', name), path.join(target, 'services', name)];
    if (existsSync(path.join(to, 'node_modules'))) removeUnread(path.join(to, 'node_modules'));
    cpSync(path.join(from, 'dist'), path.join(to, 'dist'), { recursive: true, filter: isProgram });
    const migrations = path.join(from, 'migrations');
    if (existsSync(migrations)) cpSync(migrations, path.join(to, 'migrations'), { recursive: true });
  }
  cpSync(path.join(root, 'protos'), path.join(target, 'protos'), { recursive: true });
  mkdirSync(path.join(target, 'scripts'));
  for (const name of scripts) copy(root, target, `scripts/${name}.mjs`);
  for (const name of ['granary.mjs', 'smoke.mjs'])
    cpSync(path.join(root, 'deploy/image', name), path.join(target, name));
  copy(root, target, 'LICENSE');
  writeFileSync(path.join(target, 'sbom.spdx.json'), `${JSON.stringify(list, undefined, 1)}\n`);
}

const copy = (root, target, file) => cpSync(path.join(root, file), path.join(target, file));

const isProgram = (file) => !/\.test\.|\.d\.ts$|\.map$/.test(file);

/** Installs what the services need at run time, from the lockfile. npm compares it with all workspaces. */
async function installPackages(root, target) {
  mkdirSync(target, { recursive: true });
  for (const file of ['package.json', 'package-lock.json']) copy(root, target, file);
  for (const name of readdirSync(path.join(root, 'services'), { withFileTypes: true })) {
    if (name.isDirectory()) copy(root, target, `services/${name.name}/package.json`);
  }
  const workspaces = services.map((name) => `--workspace=services/${name}`);
  const flags = ['--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
  await npm(target, ['ci', ...flags, ...workspaces]);
  for (const name of ['local', 'testing', 'bench', 'e2e']) {
    rmSync(path.join(target, 'services', name), { recursive: true });
    rmSync(path.join(target, 'node_modules/@granary', name), { force: true });
  }
  rmSync(path.join(target, 'node_modules/.bin'), { recursive: true, force: true });
}

function removeUnread(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (entry.isFile() && unread.test(entry.name)) rmSync(path.join(entry.parentPath, entry.name));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));
  await stageApplication(root, path.resolve(process.argv[2]));
}
