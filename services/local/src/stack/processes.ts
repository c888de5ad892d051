import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import os from 'node:os';

/**
 * A text that names one process and none that later gets its process id: the id, the moment of its start, and the place
 * where ids mean anything. Undefined when no such process runs; one that has ended and waits to be reaped does not run.
 */
export function identify(pid: number): string | undefined {
  const started = process.platform === 'linux' ? startOnLinux(pid) : startByPs(pid);
  return started === undefined ? undefined : `${pid}-${shortHash(started)}-${place()}`;
}

/** The process id in a text of `identify`. */
export function pidOf(identity: string): number {
  return Number(identity.split('-')[0]);
}

/** Whether the process that a text of `identify` names still runs, as far as we can see it. */
export function isAlive(identity: string): boolean {
  const pid = pidOf(identity);
  return pid > 0 && identify(pid) === identity;
}

/**
 * Whether the process that a file or folder belongs to has ended. Those of another container or machine with which we
 * share the folder cannot be seen: there it counts as ended when the file has not been touched for `foreignMs`.
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

/** Sends a signal; a process that is gone already, or has become somebody else's, is left alone. */
export function signal(identity: string, name: NodeJS.Signals): void {
  if (!isAlive(identity)) return;
  try {
    process.kill(pidOf(identity), name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Names the boot of the machine and the container: process ids of one mean nothing in another. */
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
    // The name in brackets may hold anything, so the fields are counted from its end.
    const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    // Ticks since the boot.
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
    // ps ends with 1 when there is no such process.
    return undefined;
  }
}
