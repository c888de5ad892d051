import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { messageOf } from './errors.mjs';
import { buildImage, checkPlatform } from './image.mjs';
import { digestOf } from './image/archive.mjs';
import { checkNode, prepare, userDirectory } from './launch.mjs';
import { listPackage, packPackage } from './packages.mjs';
import { packChart } from './release/chart-archive.mjs';
import { withFolder } from './temporary-folder.mjs';

/** @import { Place } from './release/chart-archive.mjs' */

const usage = `Writes a release into a new folder, from which Granary is installed without a checkout: image, charts, npm packages, lists
of the packages in them (SPDX), SQL, example values, guides and checksums; INSTALL.md there says how. The same checkout
gives the same bytes on the same machine. Needs Linux, GNU tar and ldd.

  npm run release [-- --output granary-<version>] [--image registry.local/granary/granary]

--image is the place from which clusters pull the image, without a tag: the name of the image, and the default of the
chart. With registry.local it is imported on each node.
`;

const defaultImage = 'registry.local/granary/granary';
/** Values files for users, which the chart's own archive leaves out: their names in a release, and their sources. */
const exampleValues = {
  'minimal-values.yaml': 'charts/granary/ci/minimal-values.yaml',
  'production-values.yaml': 'charts/granary/ci/production-values.yaml',
  'ingress-values.yaml': 'charts/granary/ci/ingress-values.yaml',
  'infra-values.yaml': 'charts/granary-infra/ci/granary-values.yaml',
};

/**
 * Writes the release of a built checkout, with the packages of its tests, into the new folder `output`: all of it, or
 * nothing if it fails. `image` is the name of the image without a tag. Returns paths in the release, the image's name
 * with the tag and its digest. Throws a sentence for a folder that exists or cannot be made, a name that is none, and
 * versions that differ.
 * @param {string} root @param {{ output: string, image?: string }} options
 */
export async function writeRelease(root, { output, image = defaultImage }) {
  const place = parsePlace(image);
  checkOutput(output);
  const version = readVersion(root);
  const parent = path.dirname(output);
  const reference = `${image}:${version}`;
  const files = {
    imageArchive: `image/granary-${version}.tar`,
    chart: `charts/granary-${version}.tgz`,
    minimalValues: 'values/minimal-values.yaml',
  };
  // Beside the release, so that it can be renamed.
  const digest = await withFolder(path.join(parent, '.granary-release-'), async (work) => {
    const folder = path.join(work, 'release');
    for (const each of ['image', 'charts', 'npm', 'values']) mkdirSync(path.join(folder, each), { recursive: true });
    const list = path.join(folder, `image/granary-${version}.spdx.json`);
    const archive = path.join(folder, files.imageArchive);
    const built = await buildImage(root, { output: archive, reference, list });
    await packChart(path.join(root, 'charts/granary'), path.join(folder, files.chart), place);
    const infra = path.join(folder, `charts/granary-infra-${version}.tgz`);
    await packChart(path.join(root, 'charts/granary-infra'), infra);
    for (const name of ['cli', 'client']) await writePackage(name, path.join(folder, 'npm'));
    copyTexts(root, folder);
    writeGuide(root, folder, { version, image, registry: place.registry, digest: built.digest });
    await writeChecksums(folder);
    renameSync(folder, output);
    return built.digest;
  });
  return { files, reference, digest };
}

/** Throws a sentence for a folder that exists or cannot be made. @param {string} output */
function checkOutput(output) {
  if (existsSync(output)) throw new Error(`${output} is there already: remove it, or name another folder by --output.`);
  const parent = path.dirname(output);
  if (!existsSync(parent)) throw new Error(`${parent}, in which the release would be written, does not exist.`);
}

/**
 * The registry and the repository of an image's name.
 * @param {string} image @returns {Place}
 */
function parsePlace(image) {
  const component = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*';
  const host = '(?:[a-z0-9-]+(?:\\.[a-z0-9-]+)+(?::\\d+)?|[a-z0-9-]+:\\d+|localhost)';
  const name = new RegExp(`^(${host})/(${component}(?:/${component})*)$`);
  const [, registry, repository] = name.exec(image) ?? [];
  if (registry === undefined || repository === undefined)
    throw new Error(
      `--image must be a registry and a repository in lower case, such as registry.example.com/granary/granary, not ` +
        `"${image}". It has no tag: that is the version.`,
    );
  return { registry, repository };
}

/** The version of a checkout, which is that of everything in a release. @param {string} root */
function readVersion(root) {
  const read = (/** @type {string} */ file) => readFileSync(path.join(root, file), 'utf8');
  /** @type {{ version: string }} */
  const { version } = JSON.parse(read('package.json'));
  const chartVersions = ['granary', 'granary-infra'].flatMap((name) => {
    const file = `charts/${name}/Chart.yaml`;
    return [...read(file).matchAll(/^(version|appVersion): (.*)$/gm)].map(([, key, value]) => [file, key, value]);
  });
  const packageVersions = ['cli', 'client'].map((name) => {
    const file = `services/${name}/package.json`;
    return [file, 'version', JSON.parse(read(file)).version];
  });
  for (const [file, key, value] of [...chartVersions, ...packageVersions])
    if (value !== version) throw new Error(`${file} has the ${key} ${value}, and package.json ${version}.`);
  return version;
}

/**
 * Writes the package of a workspace, with the list of what is in it beside it.
 * @param {string} name @param {string} folder
 */
async function writePackage(name, folder) {
  const file = await packPackage(name, folder);
  writeFileSync(file.replace(/\.tgz$/, '.spdx.json'), `${JSON.stringify(listPackage(name), undefined, 1)}\n`);
}

/** @param {string} root @param {string} folder */
function copyTexts(root, folder) {
  for (const file of ['LICENSE', 'CHANGELOG.md']) copyFileSync(path.join(root, file), path.join(folder, file));
  copyFileSync(path.join(root, 'deploy/postgres.sql'), path.join(folder, 'postgres.sql'));
  cpSync(path.join(root, 'docs'), path.join(folder, 'docs'), { recursive: true });
  for (const [name, source] of Object.entries(exampleValues))
    copyFileSync(path.join(root, source), path.join(folder, 'values', name));
}

/** @param {string} root @param {string} folder @param {Record<string, string>} names */
function writeGuide(root, folder, names) {
  const guide = readFileSync(path.join(root, 'deploy/release/INSTALL.md'), 'utf8');
  // Its links are relative to its place in the sources, where they can be followed and are tested.
  const text = guide.replaceAll('](../../', '](').replace(/\{\{(\w+)\}\}/g, (_, name) => {
    const value = names[name];
    if (value === undefined) throw new Error(`deploy/release/INSTALL.md names {{${name}}}, which nothing sets.`);
    return value;
  });
  writeFileSync(path.join(folder, 'INSTALL.md'), text);
}

/** Writes the SHA-256 of each file, as `sha256sum -c` reads them. @param {string} folder */
async function writeChecksums(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
  const lines = [];
  for (const file of files) lines.push(`${await digestOf(path.join(folder, file))}  ${file}\n`);
  writeFileSync(path.join(folder, 'SHA256SUMS'), lines.join(''));
}

async function main() {
  const { values } = parseArgs({
    options: { output: { type: 'string' }, image: { type: 'string' }, help: { type: 'boolean', short: 'h' } },
  });
  if (values.help) return void console.log(usage);
  checkNode();
  checkPlatform();
  if (values.output === '') throw new Error('--output needs a value.');
  const root = path.dirname(import.meta.dirname);
  const output = path.resolve(userDirectory('release'), values.output ?? `granary-${readVersion(root)}`);
  const image = values.image ?? defaultImage;
  // Before minutes of installing and building.
  parsePlace(image);
  checkOutput(output);
  // The types of the client are made by the compiler, which is a package of the tests.
  await prepare('services/operator', 'all');
  const { reference, digest } = await writeRelease(root, { output, image });
  console.log(`${output}: ${reference}, ${digest}\nINSTALL.md there says how it is installed.`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await main();
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
