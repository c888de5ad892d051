import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { codeOf } from '../errors.mjs';
import { prepare } from '../launch.mjs';

/** @typedef {{ url: string, app: string, key: string }} Options The app to use, and where. */

const root = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));

export const help = `Loads the 3,201 films of vega-datasets into a running Granary and demonstrates its features.

  npm run demo -- [--url <url>] [--app <app_id> --key <key>] [--data-dir <path>]

  --url <url>         address of the gateway                        (GRANARY_URL)
  --app <app_id>      the app to load the films into                (GRANARY_APP)
  --key <key>         its key, with Admin, Read and Write           (GRANARY_KEY)
  --data-dir <path>   data directory of a Granary on this machine   (DATA_DIR)
  -h, --help          prints this text

Without options it uses the demo app of the Granary started here by npm start or npm run stack.`;

/** @type {Record<string, string>} */
const flags = { '--url': 'GRANARY_URL', '--app': 'GRANARY_APP', '--key': 'GRANARY_KEY', '--data-dir': 'DATA_DIR' };

/**
 * What to use, from the flags, else the environment, else the data directory, after `prepare`; undefined for --help.
 * @param {string[]} args @param {NodeJS.ProcessEnv} environment
 * @returns {Promise<Options | undefined>}
 */
export async function readOptions(args, environment) {
  if (args.some((arg) => arg === '--help' || arg === '-h')) return undefined;
  /** @type {NodeJS.ProcessEnv} */
  const settings = { ...environment };
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? '';
    const [flag = '', ...rest] = arg.split('=');
    const variable = flags[flag];
    if (variable === undefined) {
      throw new Error(`Unknown option ${arg}. The options are ${Object.keys(flags).join(', ')} and --help.`);
    }
    const value = rest.length > 0 ? rest.join('=') : args[++i];
    if (value === undefined || value === '') throw new Error(`${flag} needs a value.`);
    settings[variable] = value;
  }
  const { GRANARY_APP: app, GRANARY_KEY: key, GRANARY_URL: givenUrl } = settings;
  if (givenUrl !== undefined && !URL.canParse(givenUrl)) throw new Error(`${givenUrl} is not a URL.`);
  if ((app === undefined) !== (key === undefined)) throw new Error('--app and --key belong together.');
  const url = givenUrl?.replace(/\/+$/, '');
  const here = (settings.npm_lifecycle_event && settings.INIT_CWD) || '.';
  if (settings.DATA_DIR) settings.DATA_DIR = path.resolve(here, settings.DATA_DIR);
  // The rest of the demo uses the built services; this changes the current directory.
  await prepare('services/local');
  if (url !== undefined && app !== undefined && key !== undefined) return { url, app, key };
  const demoApp = await findDemoApp(settings, url);
  return { url: url ?? demoApp.url, app: app ?? demoApp.app, key: key ?? demoApp.key };
}

/**
 * The demo app of a Granary running here: the one at `url`, the one on the given data directory, or any.
 * @param {NodeJS.ProcessEnv} settings @param {string | undefined} url
 * @returns {Promise<Options>}
 */
async function findDemoApp(settings, url) {
  const { isAlive } = await built('processes/processes.js');
  const directories = await dataDirectories(settings);
  /** @type {Options[]} */
  const running = [];
  /** @type {string[]} */
  const unreadable = [];
  // A stack with --docker keeps the files outside volumes in its own directory.
  for (const directory of directories.flatMap((own) => [own, path.join(own, 'docker')])) {
    /** @type {{ appId: string, key: string } | undefined} */
    const demo = readJson(path.join(directory, 'demo-app.json'), unreadable);
    /** @type {{ url: string, process: string } | undefined} */
    const note = readJson(path.join(directory, 'running.json'), unreadable);
    if (demo && url !== undefined && settings.DATA_DIR) return { url, app: demo.appId, key: demo.key };
    if (demo && note && isAlive(note.process)) running.push({ url: note.url, app: demo.appId, key: demo.key });
  }
  const demoApp = url === undefined ? running[0] : running.find((one) => isSameAddress(one.url, url));
  if (demoApp) return demoApp;
  if (unreadable.length > 0)
    throw new Error(`This user may not read ${unreadable[0]}. Run the demo as the user who started Granary.`);
  const where = directories.join(' or ');
  throw new Error(
    url === undefined
      ? `No Granary runs on ${where}. Start one with npm start, name its --data-dir, or give --url, --app and --key.`
      : `The Granary at ${url} does not run on ${where}. Name its --data-dir, or give --app and --key.`,
  );
}

/** @param {string} url */
const hostOf = (url) => new URL(url).host.replace('localhost', '127.0.0.1');
/** @param {string} one @param {string} other */
const isSameAddress = (one, other) => hostOf(one) === hostOf(other);

/**
 * The directories to search: the given one, else the defaults of `npm start` and `npm run stack`.
 * @param {NodeJS.ProcessEnv} given
 * @returns {Promise<string[]>}
 */
async function dataDirectories({ DATA_DIR: dataDir }) {
  if (dataDir) return [dataDir];
  const { resolveDataDir } = await built('postgres/data-dir.js');
  const defaults = ['.granary', '.granary-stack'].map((name) => resolveDataDir({ defaultDir: path.join(root, name) }));
  // Under root the default may be outside the checkout.
  return (await Promise.all(defaults)).map(({ dataDir: directory }) => directory);
}

/** @param {string} file */
const built = (file) => import(pathToFileURL(path.join(root, 'services/local/dist', file)).href);

/**
 * The JSON of a file, undefined if there is none. Adds a file that this user may not read to `unreadable`.
 * @param {string} file @param {string[]} unreadable
 */
function readJson(file, unreadable) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    if (codeOf(error) === 'EACCES') unreadable.push(file);
    return undefined;
  }
}
