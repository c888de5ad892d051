import { pause } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';

/** Looks again and again whether a network can be used, in each process. `watch` never rejects. */
export function watchNetwork(network: { watch(): Promise<void> }, everyMs: number): { stop(): Promise<void> } {
  const stopping = new Cancellation();
  const watching = (async () => {
    for (;;) {
      await pause(everyMs, stopping);
      if (stopping.aborted) return;
      await network.watch();
    }
  })();
  return {
    stop: async () => {
      stopping.abort();
      await watching;
    },
  };
}
