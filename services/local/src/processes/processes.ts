import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import os from 'node:os';

/**
 * A text that identifies one process even if its process id is reused: the id, its start time, and its machine and
 * container. Undefined if no such process runs; zombies do not count as running.
 */
export function identify(pid: number): string | undefined {
  const started = process.platform === 'linux' ? startOnLinux(pid) : startByPs(pid);
  return started === undefined ? undefined : `${pid}-${shortHash(started)}-${place()}`;
}

/** The process id in a text of `identify`. */
export function pidOf(identity: string): number {
  return Number(identity.split('-')[0]);
}

/** Whether the process identified by a text of `identify` still runs, as far as this machine can see. */
export function isAlive(identity: string): boolean {
  const pid = pidOf(identity);
  return pid > 0 && identify(pid) === identity;
}

/**
 * Whether the process that owns a file or folder has ended. Processes of another container or machine that shares the
 * folder are invisible; they count as ended when the file has not been updated for `foreignMs`.
 */
export async function isAbandoned(identity: string, file: string, foreignMs: number): Promise<boolean> {
  if (identity.split('-')[2] === place()) return !isAlive(identity);
  try {
    return (await stat(file)).mtimeMs < Date.now() - foreignMs;
  } catch (error) {
    // Its owner has removed it meanwhile.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/** Sends a signal, unless the process has ended or its id was reused. */
export function signal(identity: string, name: NodeJS.Signals): void {
  if (!isAlive(identity)) return;
  try {
    process.kill(pidOf(identity), name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Identifies the boot of the machine and the container: process ids are unique only within both. */
function place(): string {
  if (process.platform !== 'linux') return shortHash(os.hostname());
  return shortHash(readFileSync('/proc/sys/kernel/random/boot_id', 'utf8') + readlinkSync('/proc/self/ns/pid'));
}

function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}

function startOnLinux(pid: number): string | undefined {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in brackets may contain anything, so fields are counted after its end.
    const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    // Clock ticks since boot.
    return fields[19];
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw error;
  }
}

function startByPs(pid: number): string | undefined {
  try {
    const [state = '', ...started] = execFileSync('ps', ['-o', 'state=,lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' },
    })
      .trim()
      .split(/\s+/);
    return state === '' || state.startsWith('Z') ? undefined : started.join(' ');
  } catch {
    // ps exits with 1 if there is no such process.
    return undefined;
  }
}
