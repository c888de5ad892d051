import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { cacheFolder } from '../tools/cache';
import { identify, isAbandoned, isAlive, signal } from '@granary/local/processes/processes';

/** How long programs of a killed run may take to shut down. */
const sweepGraceMs = 5000;
/** A run of another container counts as killed after this long without an update. */
const foreignRunMs = 86_400_000;

/**
 * A run of the stack: records the programs that it has started, so that a later run can end them if this one is killed,
 * and owns a temporary folder.
 */
export interface Run {
  /** Temporary data, removed at the end. */
  directory: string;
  /** Records a program that was just started; returns its identity, see `identify`. */
  note(pid: number): string;
  forget(identity: string): void;
  end(): Promise<void>;
}

/** Removes what killed runs of this user have left, and begins a run of this process. */
export async function beginRun(): Promise<Run> {
  const runs = path.join(await cacheFolder(), 'runs');
  await mkdir(runs, { recursive: true });
  await sweepRuns(runs);
  // The folder name contains the identity of its owner, so it never exists without one.
  const folder = path.join(runs, `${identify(process.pid)}.${randomBytes(4).toString('hex')}`);
  const programs = path.join(folder, 'programs');
  const directory = path.join(folder, 'data');
  mkdirSync(programs, { recursive: true });
  mkdirSync(directory);
  return {
    directory,
    // Written synchronously, so that nothing happens between the start and its record.
    note: (pid) => {
      const identity = identify(pid);
      // The program has ended already.
      if (identity === undefined) return `${pid}-gone`;
      writeFileSync(path.join(programs, identity), '');
      return identity;
    },
    forget: (identity) => rmSync(path.join(programs, identity), { force: true }),
    end: () => rm(folder, { recursive: true, force: true, maxRetries: 5 }),
  };
}

/**
 * Ends the programs of runs whose owner has ended, and removes their temporary data. A program is ours only if both its
 * process id and its start time match the record.
 */
async function sweepRuns(runs: string): Promise<void> {
  await Promise.all(
    (await readdir(runs)).map(async (name) => {
      const folder = path.join(runs, name);
      if (!(await isAbandoned(name.split('.')[0] ?? '', folder, foreignRunMs))) return;
      // Another run may be cleaning up the same folder.
      const programs = await readdir(path.join(folder, 'programs')).catch(() => []);
      await Promise.all(programs.map(endLeftover));
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    }),
  );
}

async function endLeftover(identity: string): Promise<void> {
  for (const [name, waitMs] of [
    ['SIGTERM', sweepGraceMs],
    ['SIGKILL', 1000],
  ] as const) {
    signal(identity, name);
    const deadline = Date.now() + waitMs;
    while (isAlive(identity) && Date.now() < deadline) await delay(20);
  }
}
