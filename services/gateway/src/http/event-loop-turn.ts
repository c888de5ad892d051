/** The functions that resume the callers waiting for the end of this turn. */
let waiting: Array<() => void> = [];

/**
 * Resolves when the event loop has taken in what has arrived, for all callers of one turn at once. So answers that need
 * no waiting are written together: a receiver that sleeps is woken once for all of them, and not once for each.
 */
export function endOfTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    if (waiting.length === 1) setImmediate(resumeAll);
  });
}

function resumeAll(): void {
  const resumed = waiting;
  waiting = [];
  for (const resume of resumed) resume();
}
