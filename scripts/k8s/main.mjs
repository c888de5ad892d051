import path from 'node:path';
import { parseArgs } from 'node:util';
import { findObstacle, findServerObstacle } from './requirements.mjs';
import { prepare } from '../launch.mjs';

const root = path.dirname(path.dirname(import.meta.dirname));
const usage = `Proves the image and the chart in a real Kubernetes on this machine. Needs Linux, root and Go. Without root its API server
alone judges the values files of the chart.

  npm run test:k8s [-- --short | --only <text>,<text>…] [--minutes <number>]

With \`--short\` only what \`npm run test:system\` proves: an upgrade from the release before, helm test, an upgrade whose migration
fails, rollback, uninstall, an install into empty databases, the values files. With \`--only\` the steps whose titles contain
one of the texts, after that upgrade. The step that is running after \`--minutes\` fails, 120 by default.
`;
const options = {
  short: { type: 'boolean' },
  only: { type: 'string' },
  minutes: { type: 'string', default: '120' },
  help: { type: 'boolean', short: 'h' },
};
/** From the end of the time to that of this process: the report of the failure, and the end of the cluster. */
const endLimitMs = 120_000;

const say = (text) => console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);

/** A signal that is aborted at the end of the time. This process ends soon after that, and the cluster with it. */
function startLimit(minutes) {
  if (!(minutes > 0)) throw new Error(`--minutes must be a number above 0.`);
  const limit = new AbortController();
  const reason = new Error(`It did not end within ${minutes} minutes.`);
  const end = () => {
    console.error(reason.message);
    process.exit(1);
  };
  setTimeout(() => limit.abort(reason), minutes * 60_000).unref();
  setTimeout(end, minutes * 60_000 + endLimitMs).unref();
  return limit.signal;
}

/**
 * `npm run test:system` runs this as a child process and takes the counts as a message; there a cluster may be
 * impossible.
 */
async function main() {
  const { values } = parseArgs({ options });
  if (values.help) return void console.log(usage);
  const signal = startLimit(Number(values.minutes));
  process.once('disconnect', () => process.exit(1));
  const obstacle = await findObstacle(say);
  if (obstacle && process.env.REQUIRE_STACK === '1') throw new Error(obstacle);
  const counts = obstacle
    ? await proveWithoutCluster(obstacle, signal)
    : await prove({ isShort: values.short === true, only: values.only?.split(','), say, signal });
  say(`${counts.passed} passed, ${counts.failed} failed`);
  if (counts.failed > 0) process.exitCode = 1;
  return report({ skipped: 0, ...counts });
}

async function prove(choice) {
  await prepare('all');
  const { proveInCluster } = await import('./run.mjs');
  return proveInCluster(root, choice);
}

/** What can be proved on an API server alone; not even that where `obstacle` concerns it too. */
async function proveWithoutCluster(obstacle, signal) {
  const other = await findServerObstacle();
  console.log(
    `THE TESTS IN A REAL KUBERNETES ARE SKIPPED${other ? '' : ', BUT FOR ITS API SERVER'}: ${other ?? obstacle}`,
  );
  if (other) return { passed: 0, failed: 0, skipped: 1 };
  await prepare('all');
  const { proveOnApiServer } = await import('./api-server.mjs');
  return { ...(await proveOnApiServer(root, { say, signal })), skipped: 1 };
}

const report = (counts) => process.send && new Promise((resolve) => process.send(counts, resolve));

try {
  await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
// Whatever a step that ran out of time still waits for would hold up a natural end.
process.exit();
