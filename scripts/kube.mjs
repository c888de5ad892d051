import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { messageOf } from './errors.mjs';
import { checkNode, prepare } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const usage = `Proves the image and the chart in a real Kubernetes on this machine. Needs Linux, root and Go. Without root its API server
alone judges the values files of the chart.

  npm run test:k8s [-- --short | --only <text>,<text>…] [--minutes <number>]

With \`--short\` only what \`npm run test:system\` proves: an upgrade from the release before, helm test, an upgrade whose migration
fails, rollback, uninstall, an install into empty databases, the values files. With \`--only\` the steps whose titles contain
one of the texts, after that upgrade. The step that is running after \`--minutes\` fails, 120 by default.
`;
/** @satisfies {import('node:util').ParseArgsConfig['options']} */
const options = {
  short: { type: 'boolean' },
  only: { type: 'string' },
  minutes: { type: 'string', default: '120' },
  help: { type: 'boolean', short: 'h' },
};

/** Builds what the proof needs, and runs it: deploy/kube/src/main.ts. */
async function run() {
  const { values } = parseArgs({ options });
  if (values.help) return void console.log(usage);
  checkNode();
  // Of `npm run test:system`, which runs this as a child process.
  process.once('disconnect', () => process.exit(1));
  await prepare('all');
  const { main } = await import(pathToFileURL(path.join(root, 'deploy/kube/dist/main.js')).href);
  await main({ isShort: values.short === true, only: values.only?.split(','), minutes: Number(values.minutes) });
}

try {
  await run();
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 1;
}
// Whatever a step that ran out of time still waits for would hold up a natural end.
process.exit();
