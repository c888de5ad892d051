// @ts-check
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { runJest } from '../jest.mjs';
import { askGit } from './changes.mjs';
import { appendRecord, historyVariable, readRecords } from './history.mjs';
import { fail } from './run.mjs';
import { projectOf, reachedFrom } from './suites.mjs';
import { commandOf } from './summary.mjs';
import { readProofs } from './verdicts.mjs';

/**
 * @import { Run } from './run.mjs'
 * @typedef {object} Shard A part of a proof at its full size, with a seed of its own.
 * @property {string} suite
 * @property {number} shard from 0
 * @property {number} shards
 * @property {boolean} isFirst whether it guards money or what was acknowledged
 * @typedef {Shard & { seed: string, commit: string, outcome: 'passed' | 'failed', wallMs: number }} ShardRecord
 */

const lanes = 2;
/** A shard is meant to take two minutes; it is not begun with less than this left, and is ended when it has had more. */
const shardMs = { least: 3 * 60_000, most: 3_600_000 };
/** So many shards does a run in CI take, about: the next commit goes on behind them where there is no history. */
const shardsOfRun = 12;

const ledger = () => path.join(process.env[historyVariable] ?? os.tmpdir(), 'proofs.jsonl');

/** @returns {Shard[]} */
export function listShards() {
  return Object.entries(readProofs()).flatMap(([suite, { shards, isFirst = false }]) =>
    Array.from({ length: shards }, (_, shard) => ({ suite, shard, shards, isFirst })),
  );
}

/** @param {Shard} shard */
const keyOf = ({ suite, shard, shards }) => `${suite} ${shard} of ${shards}`;

/**
 * The order of the rotation: what was run longest ago comes first, after what never was; of three shards two guard money or what
 * was acknowledged. `place` says where to begin among those that never were.
 * @param {Shard[]} shards
 * @param {Shard[]} records oldest first
 * @param {number} place
 */
export function rotate(shards, records, place) {
  const lastRun = new Map(records.map((record, at) => [keyOf(record), at]));
  const lists = [true, false].map((isFirst) => {
    const list = shards.filter((shard) => shard.isFirst === isFirst);
    const begin = list.length === 0 ? 0 : place % list.length;
    const turned = [...list.slice(begin), ...list.slice(0, begin)];
    return turned.sort((a, b) => (lastRun.get(keyOf(a)) ?? -1) - (lastRun.get(keyOf(b)) ?? -1));
  });
  const [first = [], others = []] = lists;
  const order = [];
  while (first.length + others.length > 0) order.push(...first.splice(0, 2), ...others.splice(0, 1));
  return order;
}

/**
 * Runs one shard, and notes its outcome at once. Undefined if there was no time for it.
 * @param {Shard} shard
 * @param {number} untilMs from the start of this process
 */
async function runShard(shard, untilMs) {
  const { suite, shards } = shard;
  const folder = mkdtempSync(path.join(os.tmpdir(), 'granary-proof-'));
  const env = {
    TEST_LONG: '1',
    GRANARY_TEST_SHARDS: String(shards),
    GRANARY_TEST_SEED: `${process.env.GRANARY_TEST_SEED}.${shard.shard}`,
    GRANARY_TEST_PARTS: path.join(folder, 'parts.jsonl'),
  };
  const beganMs = performance.now();
  try {
    const args = ['--runTestsByPath', suite, '--selectProjects', projectOf(suite)];
    const { suites, problem, output } = await runJest(args, { env, untilMs, isQuiet: true });
    const failures = suites.flatMap((each) => each.failures);
    if (problem !== undefined && failures.length === 0 && performance.now() >= untilMs) return undefined;
    const outcome = problem === undefined && failures.length === 0 ? 'passed' : 'failed';
    const wallMs = Math.round(performance.now() - beganMs);
    const record = {
      ...shard,
      seed: env.GRANARY_TEST_SEED,
      commit: process.env.GRANARY_TEST_COMMIT ?? '',
      outcome,
      wallMs,
    };
    appendRecord(ledger(), record);
    console.log(`${suite}, shard ${shard.shard + 1} of ${shards}: ${outcome} (${(wallMs / 1000).toFixed(0)} s)`);
    return { shard, env, outcome, output, problem, failures, parts: readRecords(env.GRANARY_TEST_PARTS) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Runs shards in this order, two at a time, until one would begin too late. A counterexample fails the run, unless `isRelated`
 * says that the change does not concern it: then it is only printed, for the file of seeds that are always tried.
 * @param {Run} run
 * @param {Shard[]} shards
 * @param {{ untilMs: number, isRelated?: (suite: string) => boolean }} options
 */
export async function runShards(run, shards, { untilMs, isRelated = () => true }) {
  const waiting = [...shards];
  const lane = async () => {
    while (performance.now() + shardMs.least < untilMs) {
      const next = waiting.shift();
      if (next === undefined) return;
      const ran = await runShard(next, Math.min(untilMs + shardMs.least, performance.now() + shardMs.most));
      if (ran === undefined) continue;
      if (ran.outcome === 'passed') run.counts.passed++;
      else reportCounterexample(run, ran, isRelated(next.suite));
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

/** @param {Run} run @param {NonNullable<Awaited<ReturnType<typeof runShard>>>} ran @param {boolean} isRelated */
function reportCounterexample(run, { shard: { suite }, env, output, problem, failures, parts }, isRelated) {
  const [failure = { test: '', message: problem ?? 'It failed.' }] = failures;
  const command = commandOf({ suite, project: projectOf(suite) }, failure.test, env);
  const seeds = parts.flatMap(({ proof, ...part }) => `  "${proof}": [${JSON.stringify({ ...part, fault: '…' })}]`);
  console.log(`\nCOUNTEREXAMPLE in ${suite}\n${output}\n${command}`);
  if (seeds.length > 0) console.log(`For services/testing/src/found-seeds.json, one of:\n${seeds.join(',\n')}`);
  if (isRelated) fail(run, { title: `${suite}: ${failure.test}`, message: failure.message, command });
  else console.log(`THE CHANGE DOES NOT CONCERN IT, SO THIS RUN IS GREEN. MEND IT, AND ADD ITS SEED.\n`);
}

/** Proofs in rotation, after all tests. @param {Run} run @param {string[]} changed files @param {number} untilMs */
export async function runRotation(run, changed, untilMs) {
  console.log('\n── proofs in rotation');
  const order = rotate(
    listShards(),
    readRecords(ledger()),
    Number(askGit('rev-list', '--count', 'HEAD') ?? 0) * shardsOfRun,
  );
  // What starts processes does so from what is built of all sources.
  const isRelated = (/** @type {string} */ suite) =>
    changed.some((file) => suite.includes('/e2e/') && /^services\/\w+\/src\//.test(file)) ||
    [...reachedFrom(suite)].some((file) => changed.includes(file));
  await runShards(run, order, { untilMs, isRelated });
}

/** What `npm run test:long` runs: what was not done at this commit. @param {Run} run @param {{ only: string, minutes: number }} choice */
export async function runLong(run, { only, minutes }) {
  const records = () =>
    /** @type {ShardRecord[]} */ (readRecords(ledger())).filter(
      ({ commit }) => commit === process.env.GRANARY_TEST_COMMIT,
    );
  const chosen = listShards().filter(({ suite }) => suite.includes(only));
  const done = new Set(records().map(keyOf));
  const left = rotate(
    chosen.filter((shard) => !done.has(keyOf(shard))),
    readRecords(ledger()),
    0,
  );
  console.log(`${left.length} of ${chosen.length} shards were not run yet at this commit.`);
  await runShards(run, left, { untilMs: performance.now() + minutes * 60_000 });
  console.log('\nDone of each proof at this commit:');
  for (const { suite, shards } of chosen.filter(({ shard }) => shard === 0)) {
    const ofProof = records().filter((record) => record.suite === suite && record.shards === shards);
    const last = new Map(ofProof.map((record) => [record.shard, record.outcome]));
    const failed = [...last.values()].filter((outcome) => outcome === 'failed').length;
    console.log(
      `${String(last.size).padStart(4)} of ${String(shards).padEnd(4)}${failed > 0 ? `, ${failed} FAILED` : ''} ${suite}`,
    );
  }
}
