import type { CancelSignal } from './cancellation';

/** Tells whoever waits in this process that something happened. One that nobody waits for is forgotten. */
export interface Signal {
  notify(): void;
  /** Resolves at the next notification, when `aborted` aborts, or after `timeoutMs`; never rejects. */
  wait(timeoutMs: number, aborted?: CancelSignal): Promise<void>;
}

export function createSignal(): Signal {
  const waiting = new Set<() => void>();
  return {
    notify: () => {
      for (const wake of [...waiting]) wake();
    },
    wait: (timeoutMs, aborted) =>
      new Promise((resolve) => {
        const wake = () => {
          waiting.delete(wake);
          clearTimeout(timer);
          aborted?.removeEventListener('abort', wake);
          resolve();
        };
        const timer = setTimeout(wake, timeoutMs);
        waiting.add(wake);
        aborted?.addEventListener('abort', wake);
        if (aborted?.aborted) wake();
      }),
  };
}
