import { runChild } from './child.mjs';

/**
 * Runs npm in the folder `cwd`, and returns what it printed. Throws with that if it fails.
 * @param {string} cwd @param {string[]} args
 */
export async function npm(cwd, args) {
  // npm passes its path to scripts; without npm the one in PATH is used.
  const cli = process.env.npm_execpath ?? '';
  const inPath = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  const { code, output } = /npm-cli\.c?js$/.test(cli)
    ? await runChild(process.execPath, [cli, ...args], { cwd })
    : await runChild(inPath, args, { cwd });
  if (code !== 0) throw new Error(`npm ${args[0]} failed:\n${output.trim()}`);
  return output;
}
