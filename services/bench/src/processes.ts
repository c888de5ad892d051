import { fork, type ForkOptions } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { AnswerMessage, Calls, Memory } from './child';

const stopTimeoutMs = 25_000;
/** USER_HZ: the unit of processor time in /proc. */
const tickUs = 10_000;

/** A child process, whatever its calls are. */
export interface RunningProcess {
  pid: number;
  memory: () => Promise<Memory>;
  startProfile: () => Promise<void>;
  /** Writes the profile into the file. */
  stopProfile: (file: string) => Promise<void>;
  stop: () => Promise<void>;
}

/** A child process that executes calls of this type, see child.ts. */
export interface Child<C extends Calls> extends RunningProcess {
  call: <Name extends keyof C>(name: Name, ...input: Parameters<C[Name]>) => Promise<Awaited<ReturnType<C[Name]>>>;
}

/** Processor times of processes of Postgres so far, in µs by process id, and memory of its connections in MiB. */
export interface PostgresUsage {
  timesUs: Map<string, number>;
  memoryMib: number;
}

/**
 * Starts a child process that executes calls, see child.ts. `file` is a program in this folder; `env` is added to our
 * environment, and `flags` to the flags of this Node.
 */
export function startProcess<C extends Calls>(
  file: string,
  env: NodeJS.ProcessEnv = {},
  flags: readonly string[] = [],
): Child<C> {
  const execArgv = [...process.execArgv, ...flags];
  const stdio: ForkOptions['stdio'] = ['ignore', 'inherit', 'inherit', 'ipc'];
  const child = fork(path.join(__dirname, file), [], { stdio, env: { ...process.env, ...env }, execArgv });
  const waiting = new Map<number, { resolve: (result: never) => void; reject: (error: Error) => void }>();
  let lastId = 0;
  const exit = new Promise<void>((resolve) => {
    child.once('exit', (code, signal) => {
      const error = new Error(`The process of ${file} ended early (${signal ?? code}).`);
      for (const { reject } of waiting.values()) reject(error);
      resolve();
    });
  });
  child.on('message', (message) => {
    const { id, result, error } = message as AnswerMessage;
    const { resolve, reject } = waiting.get(id)!;
    waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(`${file}: ${error}`));
  });
  const send = (name: PropertyKey, input?: unknown) =>
    new Promise<never>((resolve, reject) => {
      waiting.set(++lastId, { resolve, reject });
      child.send({ id: lastId, name, input }, (error) => error && reject(error));
    });
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const cutOff = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
    await send('stop').catch((error: Error) => console.error(error.message));
    if (child.connected) child.disconnect();
    await exit;
    clearTimeout(cutOff);
  };
  return {
    pid: child.pid!,
    call: (name, ...input) => send(name, input[0]),
    memory: () => send('memory'),
    startProfile: () => send('startProfile'),
    stopProfile: (profile) => send('stopProfile', profile),
    stop,
  };
}

/** Processor time of a process so far, in µs; undefined on systems without /proc. */
export function processorTimeUs(pid: number | string): number | undefined {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // The name in brackets may contain anything, so fields are counted after its end.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * tickUs;
}

/** Resident memory of a process in MiB. */
export function residentMib(pid: number): number | undefined {
  return fieldMib(pid, 'VmRSS');
}

/**
 * Postgres's usage so far for the databases whose names begin with `prefix`: processor time by process, in µs, of their
 * connections and of the shared background processes (WAL writer, checkpointer); and the private memory of those
 * connections in MiB.
 */
export function postgresUsage(postmasterPid: number, prefix: string): PostgresUsage {
  const timesUs = new Map<string, number>();
  let memoryMib = 0;
  for (const pid of childrenOf(postmasterPid)) {
    // Postgres shows the purpose of a process in its title: `postgres: granary: <role> <database> <address> idle`.
    const title = read(`/proc/${pid}/cmdline`) ?? '';
    const isConnection = / 127\.0\.0\.1\(\d+\)/.test(title);
    if (isConnection && !title.includes(` ${prefix}`)) continue;
    timesUs.set(pid, processorTimeUs(pid) ?? 0);
    if (isConnection) memoryMib += fieldMib(pid, 'RssAnon') ?? 0;
  }
  return { timesUs, memoryMib };
}

/**
 * Processor time between two measurements, in µs. A connection that ended in between is omitted; a new one counts in
 * full.
 */
export function postgresTimeUs(before: PostgresUsage, after: PostgresUsage): number {
  return [...after.timesUs].reduce((sum, [pid, timeUs]) => sum + timeUs - (before.timesUs.get(pid) ?? 0), 0);
}

function childrenOf(parentPid: number): string[] {
  if (read('/proc/self/stat') === undefined) return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => read(`/proc/${pid}/stat`)?.match(/.*\) \S (\d+)/s)?.[1] === String(parentPid));
}

function fieldMib(pid: number | string, name: string): number | undefined {
  const [, kib] = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(read(`/proc/${pid}/status`) ?? '') ?? [];
  return kib === undefined ? undefined : Number(kib) / 1024;
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process has ended, or this is not Linux.
    return undefined;
  }
}
