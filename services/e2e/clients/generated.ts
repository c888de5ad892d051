import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { limitMs } from '@granary/testing/speed';
import { pythonForTests } from '@granary/testing/stack';

export const repository = join(__dirname, '../../..');

/** Runs a program to its end and answers what it wrote. Throws with that when it fails. */
export function runProgram(command: string, args: string[], options: { cwd: string; env?: object }): Promise<string> {
  return new Promise((resolve, reject) => {
    const settings = { ...options, env: { ...process.env, ...options.env }, timeout: limitMs(100_000) };
    execFile(command, args, { ...settings, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      if (error) reject(new Error(`${command} ${args.join(' ')}: ${error.message.split('\n')[0]}\n${stdout}${stderr}`));
      else resolve(stdout + stderr);
    });
  });
}

/** Packs workspaces and installs them into a folder that has a package.json, as their users do, without a registry. */
export async function installPackages(folder: string, workspaces: ReadonlyArray<'client' | 'cli'>): Promise<void> {
  const archives: string[] = [];
  for (const workspace of workspaces) {
    const args = ['scripts/packages.mjs', workspace, folder];
    const printed = await runProgram(process.execPath, args, { cwd: repository });
    archives.push(printed.trim().split('\n').at(-1)!);
  }
  await runProgram('npm', ['install', '--offline', '--no-audit', '--no-fund', ...archives], { cwd: folder });
}

/** Runs a program of `clients/python` with the Python tools, and returns the JSON in the last line that it prints. */
export async function runPython<T>(program: string, ...args: string[]): Promise<T> {
  const printed = await runProgram(await pythonForTests(), ['-B', program, ...args], {
    cwd: join(__dirname, 'python'),
  });
  return JSON.parse(printed.trim().split('\n').at(-1)!) as T;
}

/** Lends a folder of its own to `work`. */
export async function withFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'granary-client-'));
  try {
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
