import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import foundSeeds from './found-seeds.json';
import { isLong } from './size';

/**
 * Holds the seed of the run. `npm test -- --seed <text>` sets it, or else the first process of a run does, by
 * `commitSeed`.
 */
export const seedVariable = 'GRANARY_TEST_SEED';

/** Holds a file to which each proof appends its parts, so that the runner can say which of them to try again. */
const partsVariable = 'GRANARY_TEST_PARTS';

/** A part of a proof: the cases that one seed generates. */
export interface SeededPart {
  seed: number;
  cases: number;
}

/** A seed that once found a fault, which `fault` describes in a sentence; `found-seeds.json` has them by proof. */
interface FoundSeed extends SeededPart {
  fault: string;
}

/**
 * The seed of a run that names none: date and abbreviated hash of the last commit, such as `2026-11-26.be891b9`.
 * Whoever tests that commit tries the same cases, and the next commit tries others.
 */
export function commitSeed(): string {
  const format = ['log', '-1', '--date=format-local:%Y-%m-%d', '--format=%cd.%H'];
  const options = { cwd: __dirname, encoding: 'utf8', env: { ...process.env, TZ: 'UTC' } } as const;
  try {
    const [date, hash] = execFileSync('git', format, options).trim().split('.') as [string, string];
    return `${date}.${hash.slice(0, 10)}`;
  } catch {
    // These are sources without their history.
    return 'no-commit';
  }
}

/** The seed of this run, from which the seeds of its proofs are made. */
export const runSeed = (): string => process.env[seedVariable] ?? commitSeed();

/** The seed of this run for one proof, a whole number below 2³¹; another proof of the same run has another one. */
export function seedOf(proof: string): number {
  return hash(`${runSeed()} ${proof}`);
}

/**
 * The parts of a proof of `cases` cases: a quarter of them has the same seed in each run, so that a change is compared
 * on known ground, the others have the seed of the run, and every seed that once found a fault is tried again. In
 * `npm run test:long` all cases have the seed of their shard.
 */
export function partsOf(proof: string, cases: number): SeededPart[] {
  // A single case follows the run.
  const fixed = isLong ? 0 : Math.round(cases / 4);
  const found = (foundSeeds as Record<string, FoundSeed[]>)[proof] ?? [];
  const parts = [
    { seed: hash(proof), cases: fixed },
    { seed: seedOf(proof), cases: cases - fixed },
    ...found.map((each) => ({ seed: each.seed, cases: each.cases })),
  ];
  const { [partsVariable]: file } = process.env;
  if (file) appendFileSync(file, `${JSON.stringify({ proof, seed: seedOf(proof), cases: cases - fixed })}\n`);
  return parts.filter((part) => part.cases > 0);
}

/** A whole number below 2³¹. */
export function hash(text: string): number {
  return createHash('sha256').update(text).digest().readUInt32BE(0) >>> 1;
}
