import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChild } from './child.mjs';
import { messageOf } from './errors.mjs';
import { listPackages, npmPiece } from './image/packages.mjs';
import { prepare } from './launch.mjs';
import { npm } from './npm.mjs';
import { withFolder } from './temporary-folder.mjs';
import { transpile } from './transpile.mjs';

/**
 * @import { LockedPackages } from './install.mjs'
 *
 * @typedef {object} Manifest The members of a package.json that are used here.
 * @property {string} name
 * @property {string} version
 * @property {string} license
 * @property {string[]} files
 * @property {Record<string, string>} [dependencies]
 */

const root = path.dirname(import.meta.dirname);
/** The workspaces that others install. */
const packages = ['client', 'cli'];

/**
 * Packs a workspace into a folder, as it is published, together with the packages that it depends on: it is installed
 * without a registry. The same checkout gives the same bytes with the same npm. Returns its file.
 * @param {string} name @param {string} destination
 */
export async function packPackage(name, destination) {
  const workspace = `services/${name}`;
  await transpile(root, () => {}, workspace);
  return withFolder(path.join(root, `node_modules/.granary-${name}-`), async (staging) => {
    const manifest = copyWorkspace(workspace, staging);
    cpSync(path.join(root, 'LICENSE'), path.join(staging, 'LICENSE'));
    if (manifest.files.some((pattern) => pattern.endsWith('.d.ts'))) await writeTypes(workspace, staging);
    const dependencies = Object.keys(manifest.dependencies ?? {});
    for (const each of dependencies) {
      const target = path.join(staging, 'node_modules', each);
      if (isWorkspace(each)) copyWorkspace(each.replace('@granary', 'services'), target);
      else cpSync(path.join(root, 'node_modules', each), target, { recursive: true });
    }
    if (dependencies.length > 0) {
      const bundled = { ...manifest, bundleDependencies: dependencies };
      writeFileSync(path.join(staging, 'package.json'), `${JSON.stringify(bundled, null, 2)}\n`);
    }
    // npm keeps the modes of the files, which are those of the checkout and its installation.
    for (const entry of readdirSync(staging, { recursive: true, withFileTypes: true }))
      if (entry.isFile()) chmodSync(path.join(entry.parentPath, entry.name), 0o644);
    await npm(staging, ['pack', '--pack-destination', destination]);
    return path.join(destination, `${manifest.name.replace('@', '').replace('/', '-')}-${manifest.version}.tgz`);
  });
}

/** Lists what is in the package of a workspace, as `listPackages` does. @param {string} name */
export function listPackage(name) {
  const manifest = readManifest(`services/${name}`);
  /** @type {{ packages: LockedPackages }} */
  const { packages } = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8'));
  const dependencies = Object.keys(manifest.dependencies ?? {});
  const places = dependencies.filter((each) => !isWorkspace(each)).map((each) => `node_modules/${each}`);
  const workspaces = dependencies.filter(isWorkspace).map((each) => each.replace('@granary', 'services'));
  return listPackages(
    Object.fromEntries(
      places.map((place) => {
        const locked = packages[place];
        if (!locked) throw new Error(`package-lock.json lacks ${place}`);
        return [place, locked];
      }),
    ),
    npmPiece(manifest),
    workspaces.map((workspace) => npmPiece(readManifest(workspace))),
  );
}

/** @param {string} dependency */
const isWorkspace = (dependency) => dependency.startsWith('@granary/');

/** @param {string} workspace @returns {Manifest} */
const readManifest = (workspace) => JSON.parse(readFileSync(path.join(root, workspace, 'package.json'), 'utf8'));

/**
 * Copies the programs of a workspace without what its build notes in them. Returns what its package.json says.
 * @param {string} workspace @param {string} target
 */
function copyWorkspace(workspace, target) {
  const dist = path.join(root, workspace, 'dist');
  for (const file of readdirSync(dist, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.js')) continue;
    const copy = path.join(target, 'dist', file);
    mkdirSync(path.dirname(copy), { recursive: true });
    const text = readFileSync(path.join(dist, file), 'utf8');
    writeFileSync(copy, text.replace(/^\/\/# (granarySource|sourceMappingURL)=.*\n/gm, ''));
  }
  cpSync(path.join(root, workspace, 'package.json'), path.join(target, 'package.json'));
  return readManifest(workspace);
}

/** @param {string} workspace @param {string} staging */
async function writeTypes(workspace, staging) {
  const compiler = path.join(root, 'node_modules/typescript/bin/tsc');
  const args = [compiler, '-p', workspace, '--emitDeclarationOnly', '--outDir', path.join(staging, 'dist')];
  const { code, output } = await runChild(process.execPath, args, { cwd: root });
  if (code !== 0) throw new Error(`${workspace} does not compile:\n${output.trim()}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const [name = '', destination = '.'] = process.argv.slice(2);
    if (!packages.includes(name))
      throw new Error(`Usage: node scripts/packages.mjs ${packages.join('|')} [folder], not "${name}"`);
    const folder = path.resolve(destination);
    // The types of the client are made by the compiler, which is a package of the tests.
    await prepare(`services/${name}`, 'all');
    console.log(await packPackage(name, folder));
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
