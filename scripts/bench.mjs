import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { messageOf } from './errors.mjs';
import { prepare } from './launch.mjs';

const root = path.dirname(import.meta.dirname);

/** Measures Granary: prepares what services/bench needs, and runs it. @param {string[]} args */
async function main(args) {
  // npm changes to the project's folder and passes the user's directory, to which relative paths refer.
  const folder = (process.env.npm_lifecycle_event && process.env.INIT_CWD) || process.cwd();
  // Payments are made by the clients of the tests.
  const isForPayments = args.some((arg) =>
    arg
      .replace(/^--only=/, '')
      .split(',')
      .includes('verifications'),
  );
  if (!args.includes('--no-build')) await prepare('services/bench', isForPayments ? 'all' : 'run');
  const bench = await import(pathToFileURL(path.join(root, 'services/bench/dist/main.js')).href);
  await bench.main(args, folder);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 1;
}
