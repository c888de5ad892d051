// @ts-check
import { runChosen, runSystemTests, runTests, systemProjects, testProjects } from './test/parts.mjs';
import { newRun } from './test/run.mjs';
import { setUp } from './test/setup.mjs';
import { finish } from './test/summary.mjs';

const usage = `npm test           the static checks, and every suite but those that start, kill, upgrade or back up whole processes
npm run test:system  those: suites, generated clients, attacks, npm start in a clean directory, the chart in a cluster

  npm test [-- [<path>…] [--seed <text>] [<option of jest>…]]
  npm test -- --install

With arguments jest alone runs: the suites below the paths, which come first, of whatever project they are. --seed repeats the
generated cases of another run, whose seed it printed. --install only installs what tests need: Kafka, MinIO and tools.
`;

/** Takes `--seed <text>` or `--seed=<text>` out of the arguments, into the environment. @param {string[]} args */
function takeSeed(args) {
  const at = args.findIndex((arg) => arg === '--seed' || arg.startsWith('--seed='));
  if (at < 0) return args;
  const isInline = args[at] !== '--seed';
  const seed = isInline ? args[at]?.slice('--seed='.length) : args[at + 1];
  if (!seed) throw new Error('--seed needs a text.');
  process.env.GRANARY_TEST_SEED = seed;
  return args.toSpliced(at, isInline ? 1 : 2);
}

/** Which part of the tests is run: `--system` and `--ci` come from package.json and from .ci/run. @param {string[]} given */
async function main(given) {
  if (given.includes('--help') || given.includes('-h')) return console.log(usage);
  const [mode] = given;
  const isSystem = mode === '--system';
  const options = isSystem || mode === '--ci' ? given.slice(1) : given;
  const args = takeSeed(options);
  const run = newRun();
  const changes = await setUp(run);
  if (run.isStopped || args.includes('--install')) return finish(run);
  if (options.length > 0) await runChosen(run, args, isSystem ? systemProjects : testProjects);
  else {
    if (!isSystem) await runTests(run, { isCached: mode !== '--ci', changes });
    if (isSystem || (mode === '--ci' && !run.isStopped)) await runSystemTests(run);
  }
  finish(run);
}

await main(process.argv.slice(2));
