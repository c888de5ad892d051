/** Counts the turns of the event loop from now on. */
export function countTurns(): { count: () => number; stop: () => void } {
  let turns = 0;
  const next = () => {
    turns += 1;
    immediate = setImmediate(next);
  };
  let immediate = setImmediate(next);
  return { count: () => turns, stop: () => clearImmediate(immediate) };
}
