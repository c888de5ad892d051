import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { cacheFolder } from './cache';
import { identify, isAbandoned, isAlive, signal } from './processes';

/** How long programs that a killed run has left may take to end in order. */
const sweepGraceMs = 5000;
/** From this age on a run of another container counts as killed. */
const foreignRunMs = 86_400_000;

/**
 * A run of the stack: which programs it has started, so that a later run can end them when this one was killed, and a
 * folder for data that goes with it.
 */
export interface Run {
  /** For temporary data; it is removed at the end. */
  directory: string;
  /** Notes a program that was started just now; answers the text that names it, see `identify`. */
  note(pid: number): string;
  forget(identity: string): void;
  end(): Promise<void>;
}

/** Sweeps what killed runs of this user have left, and begins a run of this process. */
export async function beginRun(): Promise<Run> {
  const runs = path.join(await cacheFolder(), 'runs');
  await mkdir(runs, { recursive: true });
  await sweepRuns(runs);
  // The folder is named for the process that owns it: it is there with its owner's name, or not at all.
  const folder = path.join(runs, `${identify(process.pid)}.${randomBytes(4).toString('hex')}`);
  const programs = path.join(folder, 'programs');
  const directory = path.join(folder, 'data');
  mkdirSync(programs, { recursive: true });
  mkdirSync(directory);
  return {
    directory,
    // Written without giving up control, so that nothing comes between the start and the note of it.
    note: (pid) => {
      const identity = identify(pid);
      // It has ended within the same moment.
      if (identity === undefined) return `${pid}-gone`;
      writeFileSync(path.join(programs, identity), '');
      return identity;
    },
    forget: (identity) => rmSync(path.join(programs, identity), { force: true }),
    end: () => rm(folder, { recursive: true, force: true, maxRetries: 5 }),
  };
}

/**
 * Ends the programs of runs whose owner is gone, and removes their temporary data. A process id alone is not believed:
 * a program counts as ours only when it also started at the noted moment.
 */
async function sweepRuns(runs: string): Promise<void> {
  await Promise.all(
    (await readdir(runs)).map(async (name) => {
      const folder = path.join(runs, name);
      if (!(await isAbandoned(name.split('.')[0] ?? '', folder, foreignRunMs))) return;
      // Another run may sweep the same folder at this moment.
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
