import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

/** Throws a sentence if this Node is older than 20.19. */
export function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new Error(`Granary needs Node 20.19 or newer; this is Node ${process.versions.node}.`);
  }
}

/**
 * Translates the flags of an npm script into environment variables, which the services read. `flags` maps each flag to
 * its variable, or to the variable and its value for a flag without a value; `<directory>` maps the positional
 * argument, if there is one. Returns false after printing the help.
 */
export function readFlags(script, args, flags, help) {
  // npm changes to the project's folder and passes the user's directory; relative paths refer to the latter.
  const here = (process.env.npm_lifecycle_event === script && process.env.INIT_CWD) || process.cwd();
  if (args.some((arg) => arg === '--help' || arg === '-h')) {
    console.log(help);
    return false;
  }
  for (let i = 0; i < args.length; i++) {
    const [flag, ...rest] = args[i].split('=');
    if (!flag.startsWith('-') && '<directory>' in flags) {
      process.env[flags['<directory>']] = path.resolve(here, args[i]);
      continue;
    }
    if (!(flag in flags)) {
      throw new Error(`Unknown option ${args[i]}. The options are ${Object.keys(flags).join(', ')} and --help.`);
    }
    const [name, fixed] = [flags[flag]].flat();
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

/** Checked here to name the flag; the service would name the variable, and only after a build. */
function checkPort(flag, value) {
  if (!/^\d{1,5}$/.test(value) || Number(value) > 65_535) {
    throw new Error(`${flag} must be a whole number from 0 to 65535, not ${JSON.stringify(value)}.`);
  }
}

/** Reads the file .env of the checkout. Flags and the environment take precedence. */
export function readEnvFile() {
  const file = path.join(root, '.env');
  if (!existsSync(file)) return;
  const given = process.env.DATA_DIR;
  try {
    process.loadEnvFile(file);
  } catch (error) {
    throw new Error(`${file} cannot be read: ${error.message}`, { cause: error });
  }
  // A relative path in the file refers to the checkout, regardless of the current directory.
  if (!given && process.env.DATA_DIR) process.env.DATA_DIR = path.resolve(root, process.env.DATA_DIR);
}

/** Prepares the project: installs packages, builds everything. */
export async function prepare() {
  // The default data directory is in the project, regardless of the current directory.
  process.chdir(root);
  if (process.env.npm_lifecycle_event) endWithNpm();
  // Imported late, because an older Node could not load these modules.
  const { installWhenNeeded } = await import('./install.mjs');
  await installWhenNeeded(root, (text) => console.error(text));
  const { build } = await import('./build.mjs');
  await build();
}

/**
 * Ends this process with npm. npm passes signals only to the shell that runs the script, and that shell does not pass
 * them on.
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
    // The process has ended, or this is not Linux.
    return '';
  }
}
