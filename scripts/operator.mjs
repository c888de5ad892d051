import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { messageOf } from './errors.mjs';
import { checkNode, prepare, readEnvFile, userDirectory } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
/** @param {string} file */
const load = (file) => import(pathToFileURL(path.join(root, file)).href);

/** Only a data directory of `npm run stack` needs it, so it is built when it is needed. @param {unknown[]} args */
async function serveObjects(...args) {
  await prepare('deploy/stack');
  const stack = await load('deploy/stack/dist/serve-objects.js');
  return stack.serveObjects(...args);
}

/** Runs a command of `granary-operator`: `node scripts/operator.mjs <command> [options]`. @param {string[]} args */
async function operate(args) {
  checkNode();
  const directory = userDirectory(process.env.npm_lifecycle_event);
  readEnvFile();
  await prepare('services/operator');
  const { runOperator } = await load('services/operator/dist/operator.js');
  await runOperator(args, { environment: process.env, directory, serveObjects });
}

operate(process.argv.slice(2)).catch((error) => {
  console.error(messageOf(error));
  process.exitCode = 1;
});
