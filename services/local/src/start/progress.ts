const personSeesMs = 5_000;
/** The interval for logs, which are not watched: an occasional line shows progress. */
const logKeepsMs = 60_000;

/** Prints what is being done and the elapsed time until it has ended. `isWatched`: the output is a terminal. */
export async function withProgress<T>(
  say: (line: string) => void,
  what: string,
  work: () => Promise<T>,
  isWatched = process.stdout.isTTY,
): Promise<T> {
  const startedMs = Date.now();
  const elapsed = () => {
    const seconds = Math.round((Date.now() - startedMs) / 1000);
    return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  };
  say(`${what} …`);
  const timer = setInterval(() => say(`${what} … ${elapsed()}`), isWatched ? personSeesMs : logKeepsMs);
  try {
    const result = await work();
    say(`${what}: done in ${elapsed()}`);
    return result;
  } finally {
    clearInterval(timer);
  }
}
