import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { npm } from '../npm.mjs';
import { listPackages } from './packages.mjs';

/** @import { Piece } from './packages.mjs' */

const services = ['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks'];
const carried = [...services, 'shared', 'operator'].map((name) => `services/${name}`);
/** What of `services/operator` imports no `services/local`, which has a Postgres of its own. */
const operatorCommands = ['dead-letters', 'ledger-verify', 'payouts', 'topics'];
const operatorPrograms = ['main.js', 'operator.js', 'commands.js', 'program'].concat(
  operatorCommands.map((name) => `commands/${name}.js`),
);
/** Files of packages that no program reads. */
const unread = /\.(d\.[cm]?ts|[cm]?ts|map|md|markdown|flow|tsbuildinfo)$|^\.package-lock\.json$/i;

/**
 * Puts the built services with their production packages into the folder `target`, as they are in the image:
 * `granary.mjs`, `services/`, `protos/`, `node_modules/` and `sbom.spdx.json`, with what else is in the image. `root`
 * is a built checkout.
 * @param {string} root @param {string} target @param {Piece[]} [others]
 */
export async function stageApplication(root, target, others = []) {
  await installPackages(root, target);
  const { name: granary, version, license } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const { packages } = JSON.parse(readFileSync(path.join(target, 'node_modules/.package-lock.json'), 'utf8'));
  const image = { name: granary, version, license, purl: `pkg:generic/${granary}@${version}` };
  const list = listPackages(packages, image, others);
  removeUnread(path.join(target, 'node_modules'));
  for (const name of [...services, 'shared']) {
    const [from, to] = [path.join(root, 'services', name), path.join(target, 'services', name)];
    if (existsSync(path.join(to, 'node_modules'))) removeUnread(path.join(to, 'node_modules'));
    cpSync(path.join(from, 'dist'), path.join(to, 'dist'), { recursive: true, filter: isProgram });
    const migrations = path.join(from, 'migrations');
    if (existsSync(migrations)) cpSync(migrations, path.join(to, 'migrations'), { recursive: true });
  }
  cpSync(path.join(root, 'protos'), path.join(target, 'protos'), { recursive: true });
  stageOperator(root, target);
  for (const name of ['granary.mjs', 'smoke.mjs'])
    cpSync(path.join(root, 'deploy/image', name), path.join(target, name));
  copy(root, target, 'LICENSE');
  writeFileSync(path.join(target, 'sbom.spdx.json'), `${JSON.stringify(list, undefined, 1)}\n`);
}

/**
 * Its packages are those of the services, so npm need not install them.
 * @param {string} root @param {string} target
 */
function stageOperator(root, target) {
  const from = path.join(root, 'services/operator/dist');
  const to = path.join(target, 'services/operator/dist');
  for (const program of operatorPrograms)
    cpSync(path.join(from, program), path.join(to, program), { recursive: true, filter: isProgram });
}

/** @param {string} root @param {string} target @param {string} file */
const copy = (root, target, file) => cpSync(path.join(root, file), path.join(target, file));

/** @param {string} file */
const isProgram = (file) => !/\.test\.|\.d\.ts$|\.map$/.test(file);

/**
 * Installs what the services need at run time, from the lockfile. npm compares it with all workspaces.
 * @param {string} root @param {string} target
 */
async function installPackages(root, target) {
  mkdirSync(target, { recursive: true });
  for (const file of ['package.json', 'package-lock.json']) copy(root, target, file);
  const workspaces = ['services', 'deploy'].flatMap((folder) =>
    readdirSync(path.join(root, folder)).map((name) => `${folder}/${name}`),
  );
  for (const folder of workspaces) {
    if (existsSync(path.join(root, folder, 'package.json'))) copy(root, target, `${folder}/package.json`);
  }
  const flags = ['--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
  await npm(target, ['ci', ...flags, ...services.map((name) => `--workspace=services/${name}`)]);
  for (const folder of workspaces.filter((each) => !carried.includes(each))) {
    rmSync(path.join(target, folder), { recursive: true, force: true });
    rmSync(path.join(target, 'node_modules/@granary', path.basename(folder)), { force: true });
  }
  rmSync(path.join(target, 'deploy'), { recursive: true });
  rmSync(path.join(target, 'node_modules/.bin'), { recursive: true, force: true });
}

/** @param {string} folder */
function removeUnread(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (entry.isFile() && unread.test(entry.name)) rmSync(path.join(entry.parentPath, entry.name));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));
  const target = process.argv[2];
  if (target === undefined) throw new Error('The folder to fill is missing.');
  await stageApplication(root, path.resolve(target));
}
