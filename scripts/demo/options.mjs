import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));

export const help = `Loads the 3,201 films of vega-datasets into a running Granary and shows what it can do with them.

  npm run demo -- [--url <url>] [--app <app_id> --key <key>] [--data-dir <path>]

  --url <url>         where the gateway answers                     (GRANARY_URL, default http://127.0.0.1:8080)
  --app <app_id>      the app to load the films into                (GRANARY_APP)
  --key <key>         its key, with Admin, Read and Write           (GRANARY_KEY)
  --data-dir <path>   of a Granary on this machine, whose demo app
                      is taken where app and key are not given      (DATA_DIR, default .granary)
  --help              this text`;

const flags = { '--url': 'GRANARY_URL', '--app': 'GRANARY_APP', '--key': 'GRANARY_KEY', '--data-dir': 'DATA_DIR' };

/** `{url, app, key}` from the flags, else the environment, else the data directory; undefined when help is asked for. */
export async function readOptions(args, environment) {
  const given = { ...environment };
  for (let i = 0; i < args.length; i++) {
    const [flag, ...rest] = args[i].split('=');
    if (flag === '--help') return undefined;
    if (!(flag in flags))
      throw new Error(`Unknown option ${args[i]}; the options are ${Object.keys(flags).join(', ')}.`);
    const value = rest.length > 0 ? rest.join('=') : args[++i];
    if (value === undefined || value === '') throw new Error(`${flag} needs a value.`);
    given[flags[flag]] = value;
  }
  const url = (given.GRANARY_URL ?? 'http://127.0.0.1:8080').replace(/\/+$/, '');
  if (!URL.canParse(url)) throw new Error(`${url} is not a URL.`);
  const { GRANARY_APP: app, GRANARY_KEY: key } = given;
  if ((app === undefined) !== (key === undefined)) throw new Error('--app and --key belong together.');
  return app === undefined ? { url, ...(await readDemoApp(given.DATA_DIR, given)) } : { url, app, key };
}

/** The app that the first start made, and its key. */
async function readDemoApp(dataDir, { npm_lifecycle_event: isNpm, INIT_CWD: here }) {
  const directory = dataDir === undefined ? await defaultDataDir() : path.resolve(isNpm && here ? here : '.', dataDir);
  const file = path.join(directory, 'demo-app.json');
  try {
    const { appId, key } = JSON.parse(readFileSync(file, 'utf8'));
    return { app: appId, key };
  } catch (error) {
    throw new Error(`${file} cannot be read. Start Granary with npm start, or give --app and --key.`, { cause: error });
  }
}

/** Where `npm start` keeps its data, which under root may be elsewhere than in the checkout. */
async function defaultDataDir() {
  const defaultDir = path.join(root, '.granary');
  const built = pathToFileURL(path.join(root, 'services/local/dist/postgres/data-dir.js')).href;
  try {
    return (await (await import(built)).resolveDataDir({ defaultDir })).dataDir;
  } catch (error) {
    // Nothing was built or started here yet.
    if (error.code === 'ERR_MODULE_NOT_FOUND') return defaultDir;
    throw error;
  }
}
