import { readFileSync } from 'node:fs';
import path from 'node:path';

/** Throws a sentence when this Node is older than 20.19. */
export function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new Error(`Granary needs Node 20.19 or newer; this is Node ${process.versions.node}.`);
  }
}

/**
 * Puts the flags of an npm script into the environment, where the services read their configuration. `flags` names the
 * variable of each flag, or the variable and its value for a flag that takes none. Answers false when it was asked for
 * help and gave it.
 */
export function readFlags(script, args, flags, help) {
  // npm changes to the project's folder and says where the user was; relative paths mean that place.
  const here = (process.env.npm_lifecycle_event === script && process.env.INIT_CWD) || process.cwd();
  for (let i = 0; i < args.length; i++) {
    const [flag, ...rest] = args[i].split('=');
    if (flag === '--help') {
      console.log(help);
      return false;
    }
    if (!(flag in flags))
      throw new Error(`Unknown option ${args[i]}; the options are ${Object.keys(flags).join(', ')}.`);
    const [name, fixed] = [flags[flag]].flat();
    if (fixed !== undefined && rest.length > 0) throw new Error(`${flag} takes no value.`);
    const value = fixed ?? (rest.length > 0 ? rest.join('=') : args[++i]);
    if (value === undefined || value === '') throw new Error(`${flag} needs a value.`);
    process.env[name] = value;
  }
  if (process.env.DATA_DIR) process.env.DATA_DIR = path.resolve(here, process.env.DATA_DIR);
  return true;
}

/** Makes the project ready to be run from its folder: packages installed, everything built. */
export async function prepare(root) {
  // The default data directory lies in the project, wherever it is started from.
  process.chdir(root);
  if (process.env.npm_lifecycle_event) endWithNpm();
  // Only now, for an older Node could not read these.
  const { installWhenNeeded } = await import('./install.mjs');
  await installWhenNeeded(root, (text) => console.error(text));
  const { build } = await import('./build.mjs');
  await build();
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
