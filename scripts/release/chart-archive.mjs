import { cpSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { tar } from '../image/archive.mjs';
import { readIfThere } from '../read-if-there.mjs';
import { withFolder } from '../temporary-folder.mjs';

/** @typedef {{ registry: string, repository: string }} Place Where an image is pulled from. */

/**
 * Packs the chart in a folder into the archive `file`, with the files that `helm package` takes. The same files give
 * the same bytes, which Helm does not promise, and no Helm is needed, which is built by Go. With `image` the values of
 * the packed chart name that place. Throws an error for patterns in `.helmignore` that it cannot read.
 * @param {string} chart @param {string} file @param {Place} [image]
 */
export async function packChart(chart, file, image) {
  const isIgnored = readIgnored(chart);
  await withFolder(path.join(os.tmpdir(), 'granary-chart-'), async (work) => {
    const name = path.basename(chart);
    const copy = path.join(work, name);
    cpSync(chart, copy, { recursive: true, filter: (each) => !isIgnored(path.relative(chart, each), each) });
    if (image) setImage(path.join(copy, 'values.yaml'), image);
    const archive = path.join(work, 'chart.tar');
    await tar(work, archive, [name]);
    writeFileSync(file, gzipSync(readFileSync(archive), { level: 9 }));
  });
}

/**
 * Returns a function that says of a path in a chart whether its `.helmignore` leaves it out.
 * @param {string} chart
 * @returns {(inChart: string, file: string) => boolean}
 */
function readIgnored(chart) {
  const lines = (readIfThere(path.join(chart, '.helmignore')) ?? '').split('\n').map((line) => line.trim());
  const patterns = lines.filter((line) => line !== '' && !line.startsWith('#'));
  const parsed = patterns.map((pattern) => {
    const [, start, name, end] = /^(\/?)([\w.-]+)(\/?)$/.exec(pattern) ?? [];
    if (name === undefined)
      throw new Error(`${chart}/.helmignore: "${pattern}" is not the name of a file, a folder/ or a /file at the top.`);
    return { name, isAtTop: start === '/', isFolder: end === '/' };
  });
  return (inChart, file) =>
    parsed.some(
      ({ name, isAtTop, isFolder }) =>
        name === (isAtTop ? inChart : path.basename(inChart)) && (!isFolder || statSync(file).isDirectory()),
    );
}

/** @param {string} file the values of a chart @param {Place} image */
function setImage(file, { registry, repository }) {
  const text = readFileSync(file, 'utf8');
  const members = /^(image:\n(?: {2}#.*\n)* {2}registry: ).+(\n(?: {2}#.*\n)* {2}repository: ).+$/m;
  if (!members.test(text)) throw new Error(`${file} does not begin "image" with its registry and its repository.`);
  writeFileSync(
    file,
    text.replace(members, (_, first, second) => `${first}${registry}${second}${repository}`),
  );
}
