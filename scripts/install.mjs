import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isRunning } from './child.mjs';
import { codeOf } from './errors.mjs';
import { npm } from './npm.mjs';
import { phase } from './phase.mjs';
import { readIfThere } from './read-if-there.mjs';

/**
 * @typedef {Record<string, string>} Ranges Names of packages with the versions that another one accepts.
 *
 * @typedef {object} LockedPackage What a lock file, or npm's record of its last install, says about the package at one
 * place.
 * @property {string} [version]
 * @property {string} [integrity]
 * @property {string} [license]
 * @property {string} [resolved] for a link the folder that it leads to
 * @property {boolean} [link]
 * @property {boolean} [optional] a platform for which it is not made goes without it
 * @property {Ranges} [dependencies]
 * @property {Ranges} [optionalDependencies]
 * @property {Ranges} [peerDependencies]
 * @property {Record<string, { optional?: boolean }>} [peerDependenciesMeta]
 *
 * @typedef {Record<string, LockedPackage>} LockedPackages By their places, such as `node_modules/pg`.
 */

const common = ['--ignore-scripts', '--no-audit', '--no-fund'];

/** Their packages are those of everything that runs without the tools of the tests, and of what translates it. */
const runWorkspaces = ['services/operator', 'services/cli'];

const lockPollMs = 200;

/**
 * Installs the packages of the lock file that are missing: `run` for what runs and builds, `all` for the tests too,
 * which satisfies both. Install scripts of packages are not run: none is needed, and an npm that blocks them must not
 * prevent the start.
 * @param {string} root @param {(line: string) => void} say @param {'run' | 'all'} [packages]
 */
export async function installWhenNeeded(root, say, packages = 'all') {
  if (missingPlaces(root, packages).length === 0) return;
  await alone(root, say, async () => {
    if (missingPlaces(root, packages).length > 0)
      await phase(say, 'Installing packages', () => install(root, packages));
  });
}

/** @param {string} root @param {'run' | 'all'} packages */
async function install(root, packages) {
  // What runs may be in use at this moment, so what the tests need is added to it. Otherwise npm makes the folder anew.
  const command = missingPlaces(root, 'run').length === 0 ? ['install', '--no-save'] : ['ci'];
  // Who has the tools of the tests keeps them.
  const isAll = packages === 'all' || hasTools(root);
  await npm(root, [
    ...command,
    ...common,
    ...(isAll ? ['--include=dev'] : ['--omit=dev', ...runWorkspaces.map((workspace) => `--workspace=${workspace}`)]),
  ]);
}

/**
 * Compares npm's record of its last install with the lock file; packages for other platforms may be absent.
 * @param {string} root @param {'run' | 'all'} packages
 */
function missingPlaces(root, packages) {
  /** @type {LockedPackages} */
  const lock = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8')).packages;
  const installed = installedPackages(root);
  const entries = packages === 'all' ? Object.entries(lock) : [...packagesOf(lock, runWorkspaces)];
  return entries.filter(([place, { version, integrity, optional, link }]) => {
    if (!place.includes('node_modules/')) return false;
    const existing = installed[place];
    if (existing === undefined) return !optional;
    return !link && (existing.version !== version || existing.integrity !== integrity);
  });
}

/** @param {string} root */
const hasTools = (root) => {
  const installed = installedPackages(root);
  /** @type {{ devDependencies: Ranges }} */
  const { devDependencies } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  return Object.keys(devDependencies).some((name) => `node_modules/${name}` in installed);
};

/**
 * What npm has installed. It writes this record last, so an installation that was killed is not in it.
 * @param {string} root
 * @returns {LockedPackages}
 */
const installedPackages = (root) =>
  JSON.parse(readIfThere(path.join(root, 'node_modules/.package-lock.json')) ?? '{"packages":{}}').packages;

/**
 * The packages of a lock file that workspaces need, by their places.
 * @param {LockedPackages} lock @param {string[]} workspaces
 */
function packagesOf(lock, workspaces) {
  /** @type {Map<string, LockedPackage>} */
  const packages = new Map();
  const add = (/** @type {string} */ place) => {
    if (packages.has(place)) return;
    const entry = lock[place];
    if (entry === undefined) throw new Error(`package-lock.json lacks ${place}`);
    packages.set(place, entry);
    const { link, resolved, dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta } = entry;
    if (link && resolved !== undefined) return add(resolved);
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies })) {
      const needed = peerDependenciesMeta?.[name]?.optional ? undefined : placeOf(lock, place, name);
      if (needed !== undefined) add(needed);
    }
  };
  for (const workspace of workspaces) add(workspace);
  return packages;
}

/**
 * Where Node finds a package from a place: in the node_modules of that place, or of a folder above it.
 * @param {LockedPackages} lock @param {string} from @param {string} name
 * @returns {string | undefined}
 */
function placeOf(lock, from, name) {
  const place = path.posix.join(from, 'node_modules', name);
  if (place in lock || from === '') return place in lock ? place : undefined;
  const above = path.posix.dirname(from);
  return placeOf(lock, above === '.' ? '' : above, name);
}

/**
 * Of two commands that install into this checkout at once the second one waits for the first.
 * @param {string} root @param {(line: string) => void} say @param {() => Promise<void>} work
 */
async function alone(root, say, work) {
  const file = path.join(root, '.granary-install');
  for (let attempt = 0; !take(file); attempt++) {
    if (attempt === 0) say('Another command installs packages here; waiting for it …');
    await delay(lockPollMs);
  }
  try {
    await work();
  } finally {
    rmSync(file, { force: true });
  }
}

/** By a link, so that the file always names its holder. One that was killed is succeeded. @param {string} file */
function take(file) {
  const temporaryFile = `${file}.${process.pid}`;
  try {
    writeFileSync(temporaryFile, String(process.pid));
    linkSync(temporaryFile, file);
    return true;
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(temporaryFile, { force: true });
  }
  const holder = readIfThere(file);
  if (holder !== undefined && !isRunning(Number(holder))) rmSync(file, { force: true });
  return false;
}
