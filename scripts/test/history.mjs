// @ts-check
import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/**
 * @typedef {object} SuiteRecord One run of a suite, a line of the history.
 * @property {string} project that of jest
 * @property {string} suite its path from the root of the repository
 * @property {'passed' | 'failed'} outcome
 * @property {number} wallMs
 * @property {number | undefined} cpuMs of the process that ran it, and of the processes that it started
 * @property {number} slowness of the machine at the start of the run, see services/testing/src/speed.ts
 * @property {string} seed
 * @property {string} commit
 */

/** Holds the folder of the cache with what earlier runs took. */
export const historyVariable = 'GRANARY_TEST_HISTORY';
/** About twenty runs. The older half is dropped beyond it. */
const linesMax = 10_000;

/** @param {{ project: string, suite: string }} record */
export const keyOf = ({ project, suite }) => `${project} ${suite}`;

const fileIn = (/** @type {string} */ folder) => path.join(folder, 'history.jsonl');

/** Appends a line at once, so that a run that is killed has left what it knew. @param {string} file @param {object} record */
export function appendRecord(file, record) {
  mkdirSync(path.dirname(file), { recursive: true });
  appendFileSync(file, `${JSON.stringify(record)}\n`);
}

/** The records of a file, oldest first; a line that a kill cut short is left out. @param {string} file @returns {any[]} */
export function readRecords(file) {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n');
  return lines.flatMap((line) => {
    try {
      return [JSON.parse(line)];
    } catch {
      return [];
    }
  });
}

/** What suites take at their full size says nothing about a run. @param {SuiteRecord} record */
export function addToHistory(record) {
  const folder = process.env[historyVariable];
  if (folder !== undefined && process.env.TEST_LONG !== '1') appendRecord(fileIn(folder), record);
}

/** The last record of each suite, by `keyOf`. @returns {Map<string, SuiteRecord>} */
export function readHistory() {
  const folder = process.env[historyVariable];
  const records = folder === undefined ? [] : readRecords(fileIn(folder));
  return new Map(records.map((record) => [keyOf(record), record]));
}

/** Drops the older half of what has become too long, by a rename. @param {string} folder */
export function boundHistory(folder) {
  const records = readRecords(fileIn(folder));
  if (records.length <= linesMax) return;
  const kept = records.slice(-linesMax / 2).map((record) => `${JSON.stringify(record)}\n`);
  const staging = `${fileIn(folder)}.${process.pid}`;
  writeFileSync(staging, kept.join(''));
  renameSync(staging, fileIn(folder));
}
