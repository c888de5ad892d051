import { runChild } from './child.mjs';

/** Runs npm in the folder `cwd`, and returns what it printed. Throws with that if it fails. */
export async function npm(cwd, args) {
  // npm passes its path to scripts; without npm the one in PATH is used.
  const program = /npm-cli\.c?js$/.test(process.env.npm_execpath ?? '')
    ? [process.execPath, process.env.npm_execpath]
    : [process.platform === 'win32' ? 'npm.cmd' : 'npm'];
  const { code, output } = await runChild(program[0], [...program.slice(1), ...args], { cwd });
  if (code !== 0) throw new Error(`npm ${args[0]} failed:\n${output.trim()}`);
  return output;
}
