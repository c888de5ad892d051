import { fork } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const stopTimeoutMs = 25_000;
/** The unit in which Linux counts processor time, for everybody who reads it: USER_HZ. */
const tickUs = 10_000;

/**
 * A child process that answers calls, see child.mjs. `file` lies in this folder; `env` is added to our own, and
 * `flags` are added to those of this Node.
 */
export function startProcess(file, env = {}, flags = []) {
  const execArgv = [...process.execArgv, ...flags];
  const options = { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], env: { ...process.env, ...env }, execArgv };
  const child = fork(path.join(here, file), [], options);
  const waiting = new Map();
  let lastId = 0;
  const exited = new Promise((resolve) => {
    child.once('exit', (code, signal) => {
      const error = new Error(`The process of ${file} ended early (${signal ?? code}).`);
      for (const { reject } of waiting.values()) reject(error);
      resolve();
    });
  });
  child.on('message', ({ id, result, error }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(`${file}: ${error}`));
  });
  const call = (name, input) =>
    new Promise((resolve, reject) => {
      waiting.set(++lastId, { resolve, reject });
      child.send({ id: lastId, name, input }, (error) => error && reject(error));
    });
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const cutOff = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
    await call('stop').catch((error) => console.error(error.message));
    if (child.connected) child.disconnect();
    await exited;
    clearTimeout(cutOff);
  };
  return { pid: child.pid, call, stop };
}

/** Processor time that a process has taken so far, in µs; undefined where there is no /proc. */
export function processorTimeUs(pid) {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // The name in brackets may hold anything, so the fields are counted from its end.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * tickUs;
}

/** Resident memory of a process in MiB. */
export function residentMib(pid) {
  return fieldMib(pid, 'VmRSS');
}

/**
 * What Postgres has taken so far for the databases whose names begin with `prefix`: processor time by process, in µs,
 * of their connections and of what works for all (log writer, checkpointer); and the memory of those connections in
 * MiB, without what all share.
 */
export function postgresUsage(postmasterPid, prefix) {
  const timesUs = new Map();
  let memoryMib = 0;
  for (const pid of childrenOf(postmasterPid)) {
    // Postgres writes into its title what a process is for: `postgres: granary: <role> <database> <address> idle`.
    const title = read(`/proc/${pid}/cmdline`) ?? '';
    const isConnection = / 127\.0\.0\.1\(\d+\)/.test(title);
    if (isConnection && !title.includes(` ${prefix}`)) continue;
    timesUs.set(pid, processorTimeUs(pid) ?? 0);
    if (isConnection) memoryMib += fieldMib(pid, 'RssAnon') ?? 0;
  }
  return { timesUs, memoryMib };
}

/** Processor time between two looks, in µs. A connection that ended in between is left out, a new one counts whole. */
export function postgresTimeUs(before, after) {
  return [...after.timesUs].reduce((sum, [pid, timeUs]) => sum + timeUs - (before.timesUs.get(pid) ?? 0), 0);
}

function childrenOf(parentPid) {
  if (read('/proc/self/stat') === undefined) return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => read(`/proc/${pid}/stat`)?.match(/.*\) \S (\d+)/s)?.[1] === String(parentPid));
}

function fieldMib(pid, name) {
  const [, kib] = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(read(`/proc/${pid}/status`) ?? '') ?? [];
  return kib === undefined ? undefined : Number(kib) / 1024;
}

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process is gone, or this is no Linux.
    return undefined;
  }
}
