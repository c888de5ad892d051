import { counters, gauges, histograms } from '@granary/shared/telemetry/metrics';

/**
 * `optimistic`: in one round trip; `preloaded`: a bulk that was copied before its turn; `locked`: in two round trips.
 */
const paths = ['optimistic', 'preloaded', 'locked'] as const;
export type CommitPath = (typeof paths)[number];

const labels = ['path'];
const durations = histograms({
  name: 'granary_commit_duration_seconds',
  help: 'Duration of the transactions of committed batches.',
  labels,
});
const writes = counters({
  name: 'granary_commit_writes_total',
  help: 'Writes of committed batches.',
  labels,
});
/** The waiting bytes of all apps together. */
export const waitingBytes = gauges({
  name: 'granary_commit_waiting_bytes',
  help: 'Bytes of writes that are being parsed or wait for their batch.',
  labels: [],
}).with();

/** Counts a committed batch. */
export function countBatch(path: CommitPath, batch: readonly unknown[], startedAtMs: number): void {
  durations.with(path).observe((performance.now() - startedAtMs) / 1_000);
  writes.with(path).inc(batch.length);
}

for (const path of paths) {
  durations.with(path);
  writes.with(path);
}
