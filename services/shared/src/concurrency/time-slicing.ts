/** How long a long work may keep the event loop to itself. */
const sliceMs = 1;
/** So many slices a work has in a row, so that usual ones end one after the other and few are held half done. */
const slicesInRow = 16;

/** A long work as short steps: it yields after each, and returns its result. */
export type Steps<T> = Generator<void, T, void>;

/** Works that wait for a turn of the event loop, the next one first. */
const waiting: Array<() => void> = [];

/** Does a work in one go: one that is short, or that cannot wait. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/**
 * Does a work in slices of about a millisecond. However many works are under way, each turn of the event loop has one
 * slice of one of them, so what else the process does waits for no more. A work that `goesFirst` begins at once and goes
 * before the others: one that is mostly short, or that is waited for. Rejects with what a step throws.
 */
export async function inSlices<T>(
  steps: Steps<T>,
  { goesFirst = false, now = () => performance.now() }: { goesFirst?: boolean; now?: () => number } = {},
): Promise<T> {
  if (!goesFirst && waiting.length > 0) await nextTurn('last');
  for (let slices = 1; ; slices += 1) {
    const endMs = now() + sliceMs;
    do {
      const { done, value } = steps.next();
      if (done) return value;
    } while (now() < endMs);
    await nextTurn(goesFirst || slices % slicesInRow !== 0 ? 'first' : 'last');
  }
}

function nextTurn(place: 'first' | 'last'): Promise<void> {
  return new Promise((resolve) => {
    if (place === 'first') waiting.unshift(resolve);
    else waiting.push(resolve);
    if (waiting.length === 1) setImmediate(goOn);
  });
}

function goOn(): void {
  waiting.shift()!();
  // The immediates of one turn run all together; one that is asked for meanwhile belongs to the next.
  if (waiting.length > 0) setImmediate(goOn);
}
