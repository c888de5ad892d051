import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

/** Of a tick of the processor in /proc, in milliseconds; Linux has 100 a second on every machine that Node runs on. */
const tickMs = 10;

/**
 * The processor time of this process and of the descendants it has waited for, in milliseconds; undefined without
 * /proc.
 */
export function processorMs() {
  try {
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks) * tickMs, 0);
  } catch {
    return undefined;
  }
}

/**
 * Runs one suite as jest does by default, in a process that runs one at a time, and adds what it took of the processor.
 * @param {unknown[]} args
 */
export default async function runSuite(...args) {
  const beforeMs = processorMs();
  const result = await createRequire(import.meta.url)('jest-circus/runner').default(...args);
  const afterMs = processorMs();
  if (beforeMs !== undefined && afterMs !== undefined) result.cpuMs = afterMs - beforeMs;
  return result;
}
