import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const help = `Starts Granary: all of its services in one process, on a Postgres of its own.

  npm start -- [--port <n>] [--data-dir <path>] [--operator-key <key>]

  --port <n>             port of the HTTP API on 127.0.0.1, 0 for any free one   (PORT, default 8080)
  --data-dir <path>      where the data is kept                                  (DATA_DIR, default .granary)
  --operator-key <key>   key of whoever runs it; else one is made and kept       (OPERATOR_KEY)
  --help                 this text`;

const flags = { '--port': 'PORT', '--data-dir': 'DATA_DIR', '--operator-key': 'OPERATOR_KEY' };

/** Puts the flags into the environment, where the services read their configuration. */
function readFlags(args) {
  // npm changes to the project's folder and says where the user was; relative paths mean that place.
  const here = (process.env.npm_lifecycle_event === 'start' && process.env.INIT_CWD) || process.cwd();
  for (let i = 0; i < args.length; i++) {
    const [flag, ...rest] = args[i].split('=');
    if (flag === '--help') {
      console.log(help);
      return false;
    }
    if (!(flag in flags))
      throw new Error(`Unknown option ${args[i]}; the options are ${Object.keys(flags).join(', ')}.`);
    const value = rest.length > 0 ? rest.join('=') : args[++i];
    if (value === undefined || value === '') throw new Error(`${flag} needs a value.`);
    process.env[flags[flag]] = value;
  }
  if (process.env.DATA_DIR) process.env.DATA_DIR = path.resolve(here, process.env.DATA_DIR);
  return true;
}

/**
 * A Node that npm started ends with it. npm passes signals on to the shell between them, which does not pass them on;
 * and a kill passes on nothing.
 */
function endWithNpm() {
  const ancestors = () => {
    const parent = process.ppid;
    const [, name, grandparent] = /\((.*)\) \S (\d+)/s.exec(read(`/proc/${parent}/stat`)) ?? [];
    return /^(ba|da|a|z|k)?sh$/.test(name) ? `${parent} ${grandparent}` : `${parent}`;
  };
  const npm = ancestors();
  const check = setInterval(() => {
    if (ancestors() === npm) return;
    clearInterval(check);
    process.kill(process.pid, 'SIGTERM');
  }, 200);
  check.unref();
}

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process is gone, or this is no Linux.
    return '';
  }
}

async function start() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new Error(`Granary needs Node 20.19 or newer; this is Node ${process.versions.node}.`);
  }
  if (!readFlags(process.argv.slice(2))) return;
  // The default data directory lies in the project, wherever it is started from.
  process.chdir(root);
  if (process.env.npm_lifecycle_event) endWithNpm();

  // Only now, for an older Node could not read these.
  const { installWhenNeeded } = await import('./install.mjs');
  await installWhenNeeded(root, (text) => console.error(text));
  const { build } = await import('./build.mjs');
  await build();

  // Ctrl-C arrives twice, from the terminal and through npm. Until the services listen for signals the first ends us;
  // from then on they stop once, and these listeners keep the second from cutting that short.
  let loaded = false;
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ]) {
    process.on(signal, () => {
      if (!loaded) process.exit(code);
    });
  }
  await import(pathToFileURL(path.join(root, 'services/local/dist/main.js')).href);
  loaded = true;
}

start().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
