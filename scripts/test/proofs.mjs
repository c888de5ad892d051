import { rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { runJest } from '../jest.mjs';
import { askGit } from './changes.mjs';
import { appendRecord, historyVariable, readRecords } from './history.mjs';
import { fail } from './run.mjs';
import { projectOf, reachedFrom } from '../suites.mjs';
import { commandOf } from './summary.mjs';
import { readProofs } from './verdicts.mjs';

/** @import { Run } from './run.mjs' @typedef {ReturnType<typeof listShards>[number]} Shard */

const lanes = 2;
/**
 * A shard is meant to take two minutes; it is not begun with less than this left, and is ended when it has had more.
 */
const shardMs = { least: 3 * 60_000, most: 3_600_000 };
/** So many shards does a run in CI take at least: the next commit goes on behind them where there is no history. */
const shardsOfRun = { first: 8, others: 4 };

const ledger = () => path.join(process.env[historyVariable] ?? os.tmpdir(), 'proofs.jsonl');

/** The parts, from 0, of all proofs at their full size, each with a seed of its own. */
function listShards() {
  return Object.entries(readProofs()).flatMap(([suite, { shards, isFirst = false }]) =>
    Array.from({ length: shards }, (_, shard) => ({ suite, shard, shards, isFirst })),
  );
}

/** @param {Shard} shard */
const keyOf = ({ suite, shard, shards }) => `${suite} ${shard} of ${shards}`;

/**
 * The order of the rotation: what was run longest ago comes first, after what never was; of three shards two guard
 * money or what was acknowledged. Where to begin among those that never were is a matter of the number of `commits`.
 * @param {Shard[]} shards
 * @param {Shard[]} records oldest first
 * @param {number} commits
 */
export function rotate(shards, records, commits) {
  const lastRun = new Map(records.map((record, at) => [keyOf(record), at]));
  const [first = [], others = []] = [true, false].map((isFirst) => {
    const list = shards.filter((shard) => shard.isFirst === isFirst);
    const begin = (commits * shardsOfRun[isFirst ? 'first' : 'others']) % Math.max(1, list.length);
    const turned = [...list.slice(begin), ...list.slice(0, begin)];
    return turned.sort((a, b) => (lastRun.get(keyOf(a)) ?? -1) - (lastRun.get(keyOf(b)) ?? -1));
  });
  const order = [];
  while (first.length + others.length > 0) order.push(...first.splice(0, 2), ...others.splice(0, 1));
  return order;
}

/**
 * Runs one shard, and notes its outcome at once, unless there was no time for it. A counterexample fails the run, or is
 * only printed, for the file of seeds that are always tried.
 * @param {Run} run @param {Shard} shard @param {{ untilMs: number, isRelated: (suite: string) => boolean }} options
 */
async function runShard(run, shard, { untilMs, isRelated }) {
  const { suite, shards } = shard;
  const beganMs = performance.now();
  const seed = `${process.env.GRANARY_TEST_SEED}.${shard.shard}`;
  const partsFile = path.join(os.tmpdir(), `granary-parts-${process.pid}-${shard.shard}.jsonl`);
  const env = {
    TEST_LONG: '1',
    GRANARY_TEST_SHARDS: String(shards),
    GRANARY_TEST_SEED: seed,
    GRANARY_TEST_PARTS: partsFile,
  };
  const args = ['--runTestsByPath', suite, '--selectProjects', projectOf(suite)];
  const { suites, problem, output } = await runJest(args, { env, untilMs, isQuiet: true });
  const parts = readRecords(partsFile);
  rmSync(partsFile, { force: true });
  const failures = suites.flatMap((each) => each.failures);
  if (problem !== undefined && performance.now() >= untilMs && failures.length === 0) return;
  if (problem !== undefined) failures.push({ test: '', message: problem });
  const [failure] = failures;
  const wallMs = Math.round(performance.now() - beganMs);
  const outcome = failure === undefined ? 'passed' : 'failed';
  appendRecord(ledger(), { ...shard, seed, commit: process.env.GRANARY_TEST_COMMIT, outcome, wallMs });
  console.log(`${suite}, shard ${shard.shard + 1} of ${shards}: ${outcome} (${(wallMs / 1000).toFixed(0)} s)`);
  if (failure === undefined) return void run.counts.passed++;
  const command = commandOf({ suite, project: projectOf(suite) }, failure.test, env);
  const seeds = parts.map(({ proof, ...part }) => `  "${proof}": [${JSON.stringify({ ...part, fault: '…' })}]`);
  console.log(`\nCOUNTEREXAMPLE in ${suite}\n${output}\n${command}`);
  if (seeds.length > 0) console.log(`For services/testing/src/found-seeds.json, one of:\n${seeds.join(',\n')}`);
  if (isRelated(suite)) fail(run, { title: `${suite}: ${failure.test}`, message: failure.message, command });
  else console.log('THE CHANGE DOES NOT CONCERN IT, SO IT DOES NOT FAIL THIS RUN. MEND IT, AND ADD ITS SEED.\n');
}

/**
 * Runs shards in this order, two at a time, until one would begin too late.
 * @param {Run} run @param {Shard[]} waiting @param {number} untilMs @param {(suite: string) => boolean} [isRelated]
 */
async function runShards(run, waiting, untilMs, isRelated = () => true) {
  const lane = async () => {
    while (performance.now() + shardMs.least < untilMs) {
      const next = waiting.shift();
      if (next === undefined) return;
      const endMs = Math.min(untilMs + shardMs.least, performance.now() + shardMs.most);
      await runShard(run, next, { untilMs: endMs, isRelated });
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

/** Proofs in rotation, after all tests. @param {Run} run @param {string[]} changed files @param {number} untilMs */
export async function runRotation(run, changed, untilMs) {
  console.log('\n── proofs in rotation');
  const commits = Number(askGit('rev-list', '--count', 'HEAD') ?? 0);
  // What starts processes does so from what is built of all sources.
  const concernsAll = changed.some((file) => /^(services|deploy)\/\w+\/src\//.test(file));
  await runShards(run, rotate(listShards(), readRecords(ledger()), commits), untilMs, (suite) =>
    suite.includes('/e2e/') && concernsAll ? true : [...reachedFrom(suite)].some((file) => changed.includes(file)),
  );
}

/**
 * What `npm run test:long` runs: what was not done at this commit. @param {Run} run @param {{ only: string, minutes:
 * number }} choice
 */
export async function runLong(run, { only, minutes }) {
  const { GRANARY_TEST_COMMIT: here } = process.env;
  const readDone = () =>
    new Map(
      readRecords(ledger())
        .filter(({ commit }) => commit === here)
        .map((each) => [keyOf(each), each]),
    );
  const chosen = listShards().filter(({ suite }) => suite.includes(only));
  const done = readDone();
  const left = chosen.filter((shard) => !done.has(keyOf(shard)));
  console.log(`${left.length} of ${chosen.length} shards were not run yet at this commit.`);
  await runShards(run, rotate(left, readRecords(ledger()), 0), performance.now() + minutes * 60_000);
  console.log('\nDone of each proof at this commit:');
  const doneNow = readDone();
  for (const { suite, shards } of chosen.filter(({ shard }) => shard === 0)) {
    const ofProof = chosen.flatMap((shard) => (shard.suite === suite ? (doneNow.get(keyOf(shard)) ?? []) : []));
    const failed = ofProof.filter(({ outcome }) => outcome === 'failed').length;
    console.log(
      `${String(ofProof.length).padStart(4)} of ${String(shards).padEnd(4)}${failed > 0 ? `${failed} FAILED ` : ''}${suite}`,
    );
  }
}
