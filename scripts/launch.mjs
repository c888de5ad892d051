import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

/** Throws a sentence if this Node is older than 20.19. */
export function checkNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new Error(`Granary needs Node 20.19 or newer; this is Node ${process.versions.node}.`);
  }
}

/**
 * Translates the flags of an npm script into environment variables, which the services read. `flags` maps each flag to
 * its variable, or to the variable and its value for a flag without a value. Returns false after printing the help.
 * @param {string} script @param {string[]} args @param {Record<string, string | string[]>} flags @param {string} help
 */
export function readFlags(script, args, flags, help) {
  const here = userDirectory(script);
  if (args.some((arg) => arg === '--help' || arg === '-h')) {
    console.log(help);
    return false;
  }
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? '';
    const [flag = '', ...rest] = arg.split('=');
    const [name, fixed] = [flags[flag]].flat();
    if (name === undefined) {
      throw new Error(`Unknown option ${arg}. The options are ${Object.keys(flags).join(', ')} and --help.`);
    }
    if (fixed !== undefined && rest.length > 0) throw new Error(`${flag} takes no value.`);
    const value = fixed ?? (rest.length > 0 ? rest.join('=') : args[++i]);
    if (value === undefined || value === '') throw new Error(`${flag} needs a value.`);
    if (name === 'PORT') checkPort(flag, value);
    process.env[name] = value;
  }
  if (process.env.DATA_DIR) process.env.DATA_DIR = path.resolve(here, process.env.DATA_DIR);
  readEnvFile();
  return true;
}

/**
 * The directory that relative paths of a user refer to. npm changes to the project's folder for a script, and passes
 * the directory in which it was started.
 * @param {string | undefined} script
 */
export function userDirectory(script) {
  return (process.env.npm_lifecycle_event === script && process.env.INIT_CWD) || process.cwd();
}

/**
 * Checked here to name the flag; the service would name the variable, and only after a build.
 * @param {string} flag @param {string} value
 */
function checkPort(flag, value) {
  if (!isPort(value)) throw new Error(`${flag} must be a whole number from 0 to 65535, not ${JSON.stringify(value)}.`);
}

/** @param {string} value */
const isPort = (value) => /^\d{1,5}$/.test(value) && Number(value) <= 65_535;

/**
 * Throws a sentence if the address of `npm start` cannot be listened on, before anything is installed, built or
 * created. The service checks it again, when it takes it.
 */
export async function checkAddress() {
  const [host, port] = [process.env.HOST || '127.0.0.1', process.env.PORT || '8080'];
  // The service refuses it, together with all other settings that are wrong.
  if (!isPort(port)) return;
  const server = createServer();
  try {
    await new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen({ host, port: Number(port), exclusive: true }, () => resolve(undefined));
    });
  } catch (error) {
    const { code = '' } = /** @type {NodeJS.ErrnoException} */ (error);
    const why = JSON.parse(read(path.join(root, 'services/shared/src/listen-problems.json')))[code];
    if (why === undefined) throw error;
    throw new Error(`Cannot listen on ${host.includes(':') ? `[${host}]` : host}:${port}: ${why}`, { cause: error });
  }
  await new Promise((resolve) => server.close(resolve));
}

/** Reads the file .env of the checkout. Flags and the environment take precedence. */
export function readEnvFile() {
  const file = path.join(root, '.env');
  if (!existsSync(file)) return;
  const presetDataDir = process.env.DATA_DIR;
  try {
    process.loadEnvFile(file);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`${file} cannot be read: ${why}`, { cause: error });
  }
  // The services warn of names in it that are no settings.
  process.env.GRANARY_ENV_FILE = file;
  // A relative path in the file refers to the checkout, regardless of the current directory.
  if (!presetDataDir && process.env.DATA_DIR) process.env.DATA_DIR = path.resolve(root, process.env.DATA_DIR);
}

/**
 * Installs packages and builds a workspace with those that it depends on, where that is not done yet, and says so.
 * `workspace` is its folder, or `all`. The packages are those of what runs, or all with the tools of the tests.
 * @param {string} workspace @param {'run' | 'all'} [packages]
 */
export async function prepare(workspace, packages = workspace === 'all' ? 'all' : 'run') {
  // The default data directory is in the project, regardless of the current directory.
  process.chdir(root);
  if (process.env.npm_lifecycle_event) endWithNpm();
  // Imported late, because an older Node could not load these modules.
  const { installWhenNeeded } = await import('./install.mjs');
  const say = (/** @type {string} */ text) => console.error(text);
  await installWhenNeeded(root, say, packages);
  const { transpile } = await import('./transpile.mjs');
  await transpile(root, say, workspace);
}

/**
 * Ends this process with npm. npm passes signals only to the shell that runs the script, and that shell does not pass
 * them on.
 */
function endWithNpm() {
  const ancestors = () => {
    const parent = process.ppid;
    const [, name = '', grandparent] = /\((.*)\) \S (\d+)/s.exec(read(`/proc/${parent}/stat`)) ?? [];
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

/** @param {string} file */
function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process has ended, or this is not Linux.
    return '';
  }
}
