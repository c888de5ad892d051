import { fork } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const stopTimeoutMs = 25_000;
/** USER_HZ: the unit of processor time in /proc. */
const tickUs = 10_000;

/**
 * A child process that executes calls, see child.mjs. `file` is in this folder; `env` is added to our environment, and
 * `flags` to the flags of this Node.
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

/** Processor time of a process so far, in µs; undefined on systems without /proc. */
export function processorTimeUs(pid) {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // The name in brackets may contain anything, so fields are counted after its end.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * tickUs;
}

/** Resident memory of a process in MiB. */
export function residentMib(pid) {
  return fieldMib(pid, 'VmRSS');
}

/**
 * Postgres's usage so far for the databases whose names begin with `prefix`: processor time by process, in µs, of their
 * connections and of the shared background processes (WAL writer, checkpointer); and the private memory of those
 * connections in MiB.
 */
export function postgresUsage(postmasterPid, prefix) {
  const timesUs = new Map();
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
    // The process has ended, or this is not Linux.
    return undefined;
  }
}
