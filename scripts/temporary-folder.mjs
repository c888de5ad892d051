import { mkdtempSync, rmSync } from 'node:fs';

/** @type {Set<string>} */
const folders = new Set();
const dayMs = 86_400_000;
const signals = /** @type {const} */ (['SIGINT', 'SIGTERM']);

/**
 * Calls `use` with a new folder whose path begins with `prefix`, and returns its result. The folder is removed
 * afterwards, also when `use` throws, or when SIGINT or SIGTERM ends this process.
 * @template T
 * @param {string} prefix @param {(folder: string) => Promise<T>} use
 */
export async function withFolder(prefix, use) {
  const folder = mkdtempSync(prefix);
  if (folders.size === 0) for (const signal of signals) process.on(signal, endBySignal);
  folders.add(folder);
  // A listener for signals does not keep Node running: it would end between a child that a signal has ended and that
  // signal.
  const alive = setInterval(() => {}, dayMs);
  try {
    return await use(folder);
  } finally {
    clearInterval(alive);
    remove(folder);
    if (folders.size === 0) for (const signal of signals) process.off(signal, endBySignal);
  }
}

/** @param {string} folder */
function remove(folder) {
  rmSync(folder, { recursive: true, force: true });
  folders.delete(folder);
}

/** @param {NodeJS.Signals} signal */
function endBySignal(signal) {
  // A running child has a listener too, and may still write: its runner sends the signal again once it has ended.
  if (process.listenerCount(signal) > 1) return;
  for (const folder of folders) remove(folder);
  process.off(signal, endBySignal);
  process.kill(process.pid, signal);
}
