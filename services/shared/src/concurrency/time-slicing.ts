/** The longest part of a task that runs without a break. */
const sliceMs = 1;
/**
 * Slices of a task that run in succession, so that most tasks end one after the other and few are in progress at once.
 */
const slicesInRow = 16;

/** A long computation in short steps, which yields after each and returns its result. */
export type Task<T> = Generator<void, T, void>;

/** Tasks that wait for their next slice. */
const waiting: Array<() => void> = [];

/** Runs a task without a break: one that is short, or whose caller cannot wait. */
export function runToCompletion<T>(task: Task<T>): T {
  for (;;) {
    const { done, value } = task.next();
    if (done) return value;
  }
}

/**
 * Runs a task cooperatively, about a millisecond in each iteration of the event loop. Each iteration has one slice of
 * one task, however many are in progress, so that other callbacks of the process are delayed by no more. A task with
 * `priority` starts at once and runs before the others: one that is mostly short, or that others depend on. Rejects
 * with what a step throws.
 */
export async function runSliced<T>(
  task: Task<T>,
  { priority = false, now = () => performance.now() }: { priority?: boolean; now?: () => number } = {},
): Promise<T> {
  if (!priority && waiting.length > 0) await nextSlice('last');
  for (let slices = 1; ; slices += 1) {
    const endMs = now() + sliceMs;
    do {
      const { done, value } = task.next();
      if (done) return value;
    } while (now() < endMs);
    await nextSlice(priority || slices % slicesInRow !== 0 ? 'first' : 'last');
  }
}

function nextSlice(place: 'first' | 'last'): Promise<void> {
  return new Promise((resolve) => {
    if (place === 'first') waiting.unshift(resolve);
    else waiting.push(resolve);
    if (waiting.length === 1) setImmediate(runNext);
  });
}

function runNext(): void {
  waiting.shift()!();
  // Each task sets the immediate of the next: immediates that are set together would all run in one iteration of the
  // event loop.
  if (waiting.length > 0) setImmediate(runNext);
}
