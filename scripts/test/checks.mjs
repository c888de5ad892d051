import path from 'node:path';
import { runChild } from '../child.mjs';
import { step } from './run.mjs';

/** @import { Run } from './run.mjs' */

const root = path.dirname(path.dirname(import.meta.dirname));
const cache = path.join(root, 'node_modules/.cache');
/** At the same time, one for each core of a small machine. */
const lanes = 2;

/** Runs a script of Node; its output is shown only when it fails. @param {string} file @param {string[]} args */
async function script(file, ...args) {
  const { code, output } = await runChild(process.execPath, [path.join(root, file), ...args], { cwd: root });
  if (code !== 0) throw new Error(output.trim());
}

/** The checks, longest first. @param {boolean} isCached @returns {[string, () => unknown][]} */
function listChecks(isCached) {
  const cached = (/** @type {string} */ name) =>
    isCached ? ['--cache', '--cache-strategy', 'content', '--cache-location', path.join(cache, name)] : [];
  const eslint = ['--max-warnings', '0', ...cached('eslint.json'), '.'];
  const prettier = ['--check', '--log-level', 'warn', ...cached('prettier.json'), '.'];
  return [
    ['lint', () => script('node_modules/eslint/bin/eslint.js', ...eslint)],
    ['types', () => script('scripts/types.mjs')],
    ['format', () => script('node_modules/prettier/bin/prettier.cjs', ...prettier)],
    ['rooms', () => script('scripts/rooms.mjs', '--check')],
    ['suites', () => script('scripts/suites.mjs')],
  ];
}

/**
 * Starts the static checks, two at a time. `lastBegan` resolves once a core is free for suites. The first check that
 * fails aborts `signal` and stops the run: what it says is known within minutes, and whoever mends it runs everything
 * again.
 * @param {Run} run @param {{ isCached: boolean }} options
 */
export function startChecks(run, { isCached }) {
  const waiting = listChecks(isCached);
  const failure = new AbortController();
  const lane = async () => {
    for (let next = waiting.shift(); next && !run.isStopped; next = waiting.shift()) {
      const [name, work] = next;
      if (await step(run, name, work)) continue;
      run.isStopped = true;
      failure.abort(`${name} has failed`);
    }
  };
  const all = Array.from({ length: lanes }, lane);
  return { lastBegan: Promise.race(all), ended: Promise.all(all), signal: failure.signal };
}
