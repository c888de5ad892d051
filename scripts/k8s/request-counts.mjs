/** Throws if one of the requests of clients failed; returns how many there were. */
export function requireSuccess({ requests, failed, failures }) {
  if (failed > 0) throw new Error(`${failed} of ${requests} requests failed:\n${failures.join('\n')}`);
  return `${requests} requests, none failed`;
}

/** How many requests were made in the whole seconds between two times. */
export function countBetween(requestsAt, beganMs, endedMs) {
  const seconds = Object.keys(requestsAt).filter(
    (second) => second * 1_000 >= beganMs && second * 1_000 + 1_000 <= endedMs,
  );
  return seconds.reduce((sum, second) => sum + requestsAt[second], 0);
}

/** The sum of what became of requests in several rounds of a change, by its title. */
export const makeSum = (title) => ({ title, rounds: 0, beside: 0, requests: 0, failed: 0, kinds: {} });

/** Adds one round. */
export function addTo(sum, { kinds, ...result }) {
  sum.rounds += 1;
  for (const what of ['beside', 'requests', 'failed']) sum[what] += result[what];
  for (const [kind, count] of Object.entries(kinds)) sum.kinds[kind] = (sum.kinds[kind] ?? 0) + count;
}

export function describeSum({ title, rounds, beside, requests, failed, kinds }) {
  const times = rounds > 1 ? ` in ${rounds} times` : '';
  const done = Object.entries(kinds).map(([kind, count]) => `${kind} ${count}`);
  return `${title}: ${beside} requests beside it${times}, ${failed || 'none'} of all ${requests} failed (${done.join(', ')})`;
}
