import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

/**
 * @typedef {object} Changes
 * @property {string | undefined} base the commit since which they were made; undefined in a copy without a history
 * @property {string[]} files that differ from it, and exist
 * @property {string[]} suites those of them that are new or changed suites; one that was only moved is neither
 */

const root = path.dirname(path.dirname(import.meta.dirname));
/** A session of work: what is older has been merged, and tested. */
const newestBase = '4 hours ago';

/** @param {string[]} args */
const git = (...args) =>
  execFileSync('git', args, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 28, stdio: 'pipe' }).trim();

/** @param {string[]} args of git @returns {string | undefined} undefined if it fails, or says nothing */
export function askGit(...args) {
  try {
    return git(...args) || undefined;
  } catch {
    return undefined;
  }
}

/** A moved file imports the same from other places. @param {string} text */
const withoutImports = (text) =>
  text
    .replace(/^import\s[^;]*;$/gm, '')
    .replace(/\s+/g, ' ')
    .trim();

/** @param {string} base @param {string} before its path there @param {string} file */
function isOnlyMoved(base, before, file) {
  const text = askGit('show', `${base}:${before}`);
  return text !== undefined && withoutImports(text) === withoutImports(readFileSync(path.join(root, file), 'utf8'));
}

/**
 * What changed since `GRANARY_TEST_BASE`, else since the newest commit that is older than four hours. @returns
 * {Changes}
 */
export function findChanges() {
  const base = process.env.GRANARY_TEST_BASE || askGit('rev-list', '-1', `--before=${newestBase}`, 'HEAD');
  if (base === undefined) return { base, files: [], suites: [] };
  // A line is a kind, a tab and a path, or for a moved file its old path and its new one.
  const lines = git('diff', '--name-status', '--find-renames=50%', '--diff-filter=d', base).split('\n');
  const untracked = git('ls-files', '--others', '--exclude-standard').split('\n');
  const changes = [...lines, ...untracked.map((file) => `A\t${file}`)]
    .map((line) => line.split('\t'))
    .map(([kind = '', before = '', after = before]) => ({ kind, before, file: after }))
    .filter(({ file }) => file !== '');
  const suites = changes
    .filter(({ file }) => file.endsWith('.test.ts'))
    .filter(({ kind, before, file }) => kind.startsWith('A') || !isOnlyMoved(base, before, file));
  return { base, files: changes.map(({ file }) => file), suites: suites.map(({ file }) => file) };
}
