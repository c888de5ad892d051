import { fork, type ChildProcess, type ForkOptions } from 'node:child_process';
import { join } from 'node:path';
import { builtServices } from './stack';

/**
 * Arguments of Node before a TypeScript file of the tests, which imports packages as they were built: see
 * `builtServices`.
 */
export const programArguments = ['--require', join(__dirname, '..', 'load-typescript.js')];

/**
 * Starts a TypeScript file of the tests in a process of its own, with a channel for messages, on what the sources say.
 */
export async function forkProgram(
  file: string,
  args: readonly string[] = [],
  options: Omit<ForkOptions, 'execArgv'> = {},
): Promise<ChildProcess> {
  await builtServices();
  // Jest's environment is a copy, which Node would not pass on by itself.
  return fork(file, args, { env: process.env, ...options, execArgv: programArguments });
}

/** The built program of a package, such as `main` or `backup/backup-main`, on what the sources say. */
export async function builtProgram(name: string, program = 'main'): Promise<string> {
  await builtServices();
  const folder = name === 'stack' ? 'deploy' : 'services';
  return join(__dirname, '../../..', folder, name, 'dist', `${program}.js`);
}
