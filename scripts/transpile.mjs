import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { isRunning } from './child.mjs';
import { messageOf } from './errors.mjs';
import { phase } from './phase.mjs';
import { readIfThere } from './read-if-there.mjs';

/** @typedef {{ files: string[], isCurrent: () => boolean, write: () => void }} Output What is built of one source. */

const require = createRequire(import.meta.url);

/**
 * As jest translates the tests (jest.config.js), but `import()` stays what Node has, and maps are files of their own.
 * @type {import('@swc/core').Options}
 */
const options = {
  swcrc: false,
  configFile: false,
  jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
  // The scripts, which are modules, import names of the services.
  module: { type: 'commonjs', ignoreDynamic: true, exportInteropAnnotation: true },
  sourceMaps: true,
  inlineSourcesContent: false,
};

/** Modules, as others install them; the services are CommonJS. */
const moduleFolders = ['client', 'cli'];

/** @type {import('@swc/core').Options} */
const moduleOptions = {
  ...options,
  // Its types do not have the first member yet.
  jsc: /** @type {import('@swc/core').JscConfig} */ ({
    rewriteRelativeImportExtensions: true,
    transform: { verbatimModuleSyntax: true },
    ...options.jsc,
  }),
  module: { type: 'es6' },
};

/** Not for the services: tests, declarations, and the types of the protos, which leave nothing behind in JavaScript. */
const unused = /\.test\.ts$|\.d\.ts$|^gen\//;

/**
 * Translates `src` of every workspace to JavaScript in `dist`, or of `workspace` and of those that it depends on, and
 * copies its JSON, without judging types, which `npm run types` does. Only files that have changed are written, each by
 * a rename, and what has no source is deleted: a build that was killed is completed by the next one, and two at once do
 * not disturb each other. Throws an error that lists all files that are no TypeScript.
 * @param {string} root @param {(line: string) => void} [say] @param {string} [workspace]
 */
export async function transpile(root, say = () => {}, workspace = 'all') {
  const names = workspace === 'all' ? listWorkspaces(root) : workspacesOf(root, workspace);
  const workspaces = names
    .map((name) => path.join(root, name))
    .filter((folder) => existsSync(path.join(folder, 'src')));
  const outputs = workspaces.flatMap((folder) => outputsOf(folder));
  const stale = outputs.filter(({ isCurrent }) => !isCurrent());
  if (stale.length > 0) await phase(say, 'Building', () => writeAll(stale));
  const outputFiles = new Set(outputs.flatMap(({ files }) => files));
  for (const folder of workspaces) removeOthers(path.join(folder, 'dist'), outputFiles);
}

/** @param {string} root @param {string} folder */
const isWorkspace = (root, folder) => existsSync(path.join(root, folder, 'package.json'));

/** The workspaces, as paths from the root. `deploy` has other folders too. @param {string} root */
const listWorkspaces = (root) =>
  ['services', 'deploy']
    .filter((folder) => existsSync(path.join(root, folder)))
    .flatMap((folder) => readdirSync(path.join(root, folder)).map((name) => `${folder}/${name}`))
    .filter((folder) => isWorkspace(root, folder));

/** A workspace and those that it depends on, as paths from the root. @param {string} root @param {string} workspace */
function workspacesOf(root, workspace) {
  const workspaces = new Set([workspace]);
  for (const each of workspaces) {
    const { dependencies = {} } = JSON.parse(readFileSync(path.join(root, each, 'package.json'), 'utf8'));
    const names = Object.keys(dependencies).filter((name) => name.startsWith('@granary/'));
    for (const name of names) {
      const folders = ['services', 'deploy'].map((folder) => name.replace('@granary', folder));
      for (const folder of folders.filter((each) => isWorkspace(root, each))) workspaces.add(folder);
    }
  }
  return [...workspaces];
}

/** @param {Output[]} outputs */
function writeAll(outputs) {
  const problems = outputs.flatMap(({ write }) => {
    try {
      write();
      return [];
    } catch (error) {
      return [stripVTControlCharacters(messageOf(error)).trim()];
    }
  });
  if (problems.length > 0) throw new Error(`the build failed:\n${problems.join('\n\n')}`);
}

/** The contents of the folder `dist` of a workspace, for each source. @param {string} workspace */
function outputsOf(workspace) {
  const isModule = moduleFolders.includes(path.basename(workspace));
  return readdirSync(path.join(workspace, 'src'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|json)$/.test(entry.name))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((source) => !unused.test(path.relative(path.join(workspace, 'src'), source).replaceAll(path.sep, '/')))
    .map((source) => {
      const target = path.join(workspace, 'dist', path.relative(path.join(workspace, 'src'), source));
      return source.endsWith('.ts')
        ? program(source, target.replace(/ts$/, 'js'), isModule ? moduleOptions : options)
        : copy(source, target);
    });
}

/**
 * The program's last lines name the state of its source that it was made from, so it needs no record beside it.
 * @param {string} source @param {string} target @param {import('@swc/core').Options} translation
 * @returns {Output}
 */
function program(source, target, translation) {
  const text = readFileSync(source, 'utf8');
  const hash = createHash('sha256')
    .update(`${mechanism(translation)}\n${text}`)
    .digest('hex');
  const map = `${target}.map`;
  const end = `//# granarySource=${hash}\n//# sourceMappingURL=${path.basename(map)}\n`;
  return {
    files: [target, map],
    isCurrent: () => readIfThere(target)?.endsWith(end) === true && existsSync(map),
    write: () => {
      const { transformSync } = require('@swc/core');
      const sourceFileName = path.relative(path.dirname(target), source).replaceAll(path.sep, '/');
      const { code, map: mapping = '' } = transformSync(text, { ...translation, filename: source, sourceFileName });
      // The program comes last: where it is, its map is.
      install(map, mapping);
      install(target, `${code.trimEnd()}\n${end}`);
    },
  };
}

/** @param {string} source @param {string} target @returns {Output} */
function copy(source, target) {
  const text = readFileSync(source, 'utf8');
  return { files: [target], isCurrent: () => readIfThere(target) === text, write: () => install(target, text) };
}

/** @param {import('@swc/core').Options} translation */
const mechanism = (translation) => JSON.stringify([require('@swc/core/package.json').version, translation]);

/** Writes a file by a rename, so that nobody reads a part of it. @param {string} file @param {string} text */
function install(file, text) {
  const staging = `${file}.${process.pid}.tmp`;
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(staging, text);
  renameSync(staging, file);
}

/** @param {string} dist @param {Set<string>} outputFiles */
function removeOthers(dist, outputFiles) {
  if (!existsSync(dist)) return;
  for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name);
    if (entry.isFile() && !outputFiles.has(file) && !isBeingWritten(entry.name)) rmSync(file, { force: true });
  }
}

/** By another build, which runs at the same time. @param {string} name */
function isBeingWritten(name) {
  const [, pid] = /\.(\d+)\.tmp$/.exec(name) ?? [];
  return pid !== undefined && isRunning(Number(pid));
}
