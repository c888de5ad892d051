import { parseArgs } from 'node:util';
import { runChanged } from './test/changed.mjs';
import { compileKubernetes, runChosen, runSystemTests, runTests, systemProjects, testProjects } from './test/parts.mjs';
import { runLong, runRotation } from './test/proofs.mjs';
import { newRun } from './test/run.mjs';
import { setUp } from './test/setup.mjs';
import { finish } from './test/summary.mjs';

const usage = `npm test           the static checks, and every suite but those that start, kill, upgrade or back up whole processes
npm run test:system  those: suites, generated clients, attacks, npm start in a clean directory, the chart in a cluster
npm run test:changed  suites that import what changed, as many as a minute has room for
npm run test:long    the suites of generated cases at their full size, in shards of two minutes

  npm test [-- [<path>…] [--seed <text>] [<option of jest>…]]
  npm test -- --install

With arguments jest alone runs: the suites below the paths, which come first, of whatever project they are. --seed repeats the
generated cases of another run, whose seed it printed. --install only installs what tests need: Kafka, MinIO and tools.

  npm run test:long [-- [--only <text>] [--minutes <number>]]

What has run at this commit does not run again, so that it can be ended at any time. --only takes the suites with this text in
their path.
`;

/** Proofs in rotation get what CI has left of an hour from its start, and at most half an hour. */
const rotationEndMs = 60 * 60_000;
const rotationMs = 30 * 60_000;

/** Takes `--seed <text>` or `--seed=<text>` out of the arguments, into the environment. @param {string[]} args */
function takeSeed(args) {
  const index = args.findIndex((arg) => arg === '--seed' || arg.startsWith('--seed='));
  if (index < 0) return args;
  const isInline = args[index] !== '--seed';
  const seed = isInline ? args[index]?.slice('--seed='.length) : args[index + 1];
  if (!seed) throw new Error('--seed needs a text.');
  process.env.GRANARY_TEST_SEED = seed;
  return args.toSpliced(index, isInline ? 1 : 2);
}

/** What package.json and .ci/run begin with; `npm test` has none. */
const modes = ['--system', '--ci', '--long', '--changed'];

/** @param {string[]} argv */
async function main(argv) {
  if (argv.includes('--help') || argv.includes('-h')) return console.log(usage);
  const mode = modes.find((each) => each === argv[0]);
  const options = mode === undefined ? argv : argv.slice(1);
  const args = takeSeed(options);
  // A proof that is skipped proves nothing.
  if (mode === '--long') process.env.REQUIRE_STACK = '1';
  const run = newRun();
  const needsCluster = args.includes('--install');
  const changes = await setUp(run, { needsStack: mode !== '--changed', needsCluster });
  if (run.isStopped || needsCluster) return finish(run);
  const needsKubernetes = mode === '--ci' || (mode === '--system' && options.length === 0);
  const compiling = new AbortController();
  const compiled = needsKubernetes ? compileKubernetes(compiling.signal) : Promise.resolve();
  if (mode === '--changed') await runChanged(run, changes);
  else if (mode === '--long') await runLong(run, readChoice(args));
  else if (options.length > 0) await runChosen(run, args, mode === '--system' ? systemProjects : testProjects);
  else if (mode === '--system') await runSystemTests(run, compiled);
  else await runTests(run, { isCached: mode !== '--ci', changes });
  if (mode === '--ci' && !run.isStopped) {
    await runSystemTests(run, compiled);
    await runRotation(run, changes.files, Math.min(rotationEndMs, performance.now() + rotationMs));
  }
  // A run that was stopped early does not wait for it.
  compiling.abort();
  finish(run);
}

/** @param {string[]} args */
function readChoice(args) {
  const { values } = parseArgs({ args, options: { only: { type: 'string' }, minutes: { type: 'string' } } });
  const minutes = Number(values.minutes ?? Infinity);
  if (!(minutes > 0)) throw new Error('--minutes must be a number above 0.');
  return { only: values.only ?? '', minutes };
}

await main(process.argv.slice(2));
