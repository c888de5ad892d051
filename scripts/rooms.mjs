import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { cruise } from 'dependency-cruiser';
import configuration, { folderOf, leaves, rooms } from '../.dependency-cruiser.mjs';
import { drawRooms } from './rooms/drawing.mjs';

/**
 * @import { ICruiseResult, IModule, IViolation } from 'dependency-cruiser'
 * @import { Uses } from './rooms/drawing.mjs'
 */

const help = `Checks that imports go downward through the rooms listed in .dependency-cruiser.mjs, and draws them.

  npm run rooms              checks, and writes docs/rooms.svg
  npm run rooms -- --check   checks, and that docs/rooms.svg is current`;

const root = path.dirname(import.meta.dirname);
const picture = path.join(root, 'docs/rooms.svg');

/** Where a file of the sources is; undefined for one of another place. @param {string} file */
function placeOf(file) {
  const match = /^(?:services|deploy)\/([^/]+)\/src\/(?:(.+)\/)?([^/]+)\.ts$/.exec(file);
  if (!match) return undefined;
  const [, name = '', folder, base = ''] = match;
  if (folder !== undefined) return { name, room: folder.startsWith('gen') ? 'leaves' : folder };
  return { name, room: (leaves[name] ?? ['config']).includes(base) ? 'leaves' : 'roof' };
}

/**
 * The rooms that have a file, and from which room to which other one of its package an import leads.
 * @param {IModule[]} modules
 * @returns {Uses}
 */
function findRooms(modules) {
  /** @type {Set<string>} */
  const present = new Set();
  /** @type {Set<string>} */
  const arrows = new Set();
  for (const { source, dependencies } of modules) {
    const from = placeOf(source);
    if (!from || source.includes('/gen/')) continue;
    present.add(`${from.name} ${from.room}`);
    for (const { resolved } of dependencies) {
      const to = placeOf(resolved);
      if (to?.name === from.name && to.room !== from.room) arrows.add(`${from.name} ${from.room} ${to.room}`);
    }
  }
  return { present, arrows };
}

/** @param {IViolation} violation */
function describeViolation({ rule, from, to, cycle }) {
  const way = cycle ? cycle.map((step) => step.name).join(' → ') : to;
  return `${rule.name}: ${from} → ${way}`;
}

/** @param {string[]} args */
async function main(args) {
  if (args.includes('--help')) return console.log(help);
  process.chdir(root);
  const { output: result } = await cruise(
    Object.keys(rooms).map((name) => `${folderOf(name)}/src`),
    { ...configuration.options, ruleSet: { forbidden: configuration.forbidden }, validate: true },
  );
  // It is a text only if a reporter was chosen.
  const output = /** @type {ICruiseResult} */ (result);
  for (const violation of output.summary.violations) console.log(describeViolation(violation));
  const drawing = drawRooms(rooms, findRooms(output.modules));
  if (!args.includes('--check')) writeFileSync(picture, drawing);
  const isCurrent = readFileSync(picture, 'utf8') === drawing;
  if (!isCurrent) console.log('docs/rooms.svg is not current: run npm run rooms.');
  if (output.summary.violations.length > 0 || !isCurrent) process.exitCode = 1;
}

await main(process.argv.slice(2));
