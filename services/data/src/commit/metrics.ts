import { counters, gauges, histograms } from '@granary/shared/telemetry/metrics';

/** `foreseen`: in one journey; `ahead`: a bulk that was copied before its turn; `locked`: in two journeys. */
export type Way = 'foreseen' | 'ahead' | 'locked';

const labels = ['way'];
const durations = histograms({
  name: 'granary_commit_duration_seconds',
  help: 'How long the transactions of batches took that were committed.',
  labels,
});
const writes = counters({
  name: 'granary_commit_writes_total',
  help: 'Writes that batches had which were committed.',
  labels,
});
/** Bytes of writes that wait for their batch, of all apps. */
export const waitingBytes = gauges({
  name: 'granary_commit_waiting_bytes',
  help: 'Bytes of writes that wait for their batch.',
  labels: [],
}).with();

/** Counts a batch that was committed. */
export function countBatch(way: Way, batch: readonly unknown[], beganAtMs: number): void {
  durations.with(way).observe((performance.now() - beganAtMs) / 1_000);
  writes.with(way).add(batch.length);
}

for (const way of ['foreseen', 'ahead', 'locked'] as const) {
  durations.with(way);
  writes.with(way);
}
