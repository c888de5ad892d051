/**
 * Does a part of a command, and says what it is and how long it took. The services do so by `stack/progress.ts`.
 * @template T
 * @param {(line: string) => void} say @param {string} title @param {() => T | Promise<T>} work
 */
export async function phase(say, title, work) {
  const startedMs = performance.now();
  say(`${title} …`);
  const result = await work();
  say(`${title}: done in ${Math.round((performance.now() - startedMs) / 1000)} s`);
  return result;
}
