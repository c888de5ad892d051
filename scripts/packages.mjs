import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChild } from './child.mjs';
import { messageOf } from './errors.mjs';
import { npm } from './npm.mjs';
import { transpile } from './transpile.mjs';

/** @typedef {{ name: string, version: string, files: string[], dependencies?: Record<string, string> }} Manifest */

const root = path.dirname(import.meta.dirname);
/** The workspaces that others install. */
const packages = ['client', 'cli'];

/**
 * Packs a workspace into a folder, as it is published, together with the packages that it depends on: it is installed
 * without a registry. Returns its file. @param {string} name @param {string} destination
 */
export async function packPackage(name, destination) {
  const workspace = `services/${name}`;
  await transpile(root, () => {}, workspace);
  const staging = mkdtempSync(path.join(root, `node_modules/.granary-${name}-`));
  try {
    const manifest = copyWorkspace(workspace, staging);
    cpSync(path.join(root, 'LICENSE'), path.join(staging, 'LICENSE'));
    if (manifest.files.some((pattern) => pattern.endsWith('.d.ts'))) await writeTypes(workspace, staging);
    const dependencies = Object.keys(manifest.dependencies ?? {});
    for (const each of dependencies) {
      const target = path.join(staging, 'node_modules', each);
      if (each.startsWith('@granary/')) copyWorkspace(each.replace('@granary', 'services'), target);
      else cpSync(path.join(root, 'node_modules', each), target, { recursive: true });
    }
    if (dependencies.length > 0) {
      const bundled = { ...manifest, bundleDependencies: dependencies };
      writeFileSync(path.join(staging, 'package.json'), `${JSON.stringify(bundled, null, 2)}\n`);
    }
    await npm(staging, ['pack', '--pack-destination', destination]);
    return path.join(destination, `${manifest.name.replace('@', '').replace('/', '-')}-${manifest.version}.tgz`);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/**
 * Copies the programs of a workspace without what its build notes in them. Returns its package.json.
 * @param {string} workspace @param {string} target @returns {Manifest}
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
  const manifest = readFileSync(path.join(root, workspace, 'package.json'), 'utf8');
  writeFileSync(path.join(target, 'package.json'), manifest);
  return JSON.parse(manifest);
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
    console.log(await packPackage(name, path.resolve(destination)));
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
