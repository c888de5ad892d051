import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Holds the folder of the cache with what earlier runs took. */
export const historyVariable = 'GRANARY_TEST_HISTORY';
/** About twenty runs. The older half is dropped beyond it. */
const linesMax = 10_000;

/** @param {{ project: string, suite: string }} record */
export const keyOf = ({ project, suite }) => `${project} ${suite}`;

const file = () => path.join(process.env[historyVariable] ?? '', 'history.jsonl');

/**
 * Appends a line at once, so that a run that is killed has left what it knew. @param {string} file @param {object}
 * record
 */
export function appendRecord(file, record) {
  mkdirSync(path.dirname(file), { recursive: true });
  appendFileSync(file, `${JSON.stringify(record)}\n`);
}

/**
 * The records of a file, oldest first; a line that a kill cut short is left out. @param {string} file @returns {any[]}
 */
export function readRecords(file) {
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
  return lines.flatMap((line) => {
    try {
      return [JSON.parse(line)];
    } catch {
      return [];
    }
  });
}

/** Adds what a suite took in this run. At its full size that says nothing about others. @param {object} taken */
export function addToHistory(taken) {
  if (process.env[historyVariable] === undefined || process.env.TEST_LONG === '1') return;
  const { GRANARY_TEST_SLOWNESS: slowness, GRANARY_TEST_SEED: seed, GRANARY_TEST_COMMIT: commit } = process.env;
  appendRecord(file(), { ...taken, slowness: Number(slowness ?? 1), seed, commit });
}

/**
 * The last record of each suite, by `keyOf`.
 * @returns {Map<string, { project: string, suite: string, hasFailed: boolean, wallMs: number, slowness: number }>}
 */
export function readHistory() {
  return new Map(readRecords(file()).map((record) => [keyOf(record), record]));
}

/** Drops the older half of a history that has become too long. */
export function boundHistory() {
  const records = readRecords(file());
  if (records.length <= linesMax) return;
  writeFileSync(
    file(),
    records
      .slice(-linesMax / 2)
      .map((record) => `${JSON.stringify(record)}\n`)
      .join(''),
  );
}
