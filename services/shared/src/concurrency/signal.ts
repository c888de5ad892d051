import type { CancelSignal } from './cancellation';

/** Tells whoever waits in this process that something happened. One that nobody waits for is forgotten. */
export interface Signal {
  notify(): void;
  /**
   * Resolves at the next notification with true; with false when `aborted` aborts, or after `timeoutMs`. Never rejects.
   */
  wait(timeoutMs: number, aborted?: CancelSignal): Promise<boolean>;
}

export function createSignal(): Signal {
  const waiting = new Set<(isNotified: boolean) => void>();
  return {
    notify: () => {
      for (const wake of [...waiting]) wake(true);
    },
    wait: (timeoutMs, aborted) =>
      new Promise((resolve) => {
        const wake = (isNotified: boolean) => {
          waiting.delete(wake);
          clearTimeout(timer);
          aborted?.removeEventListener('abort', giveUp);
          resolve(isNotified);
        };
        const giveUp = () => wake(false);
        const timer = setTimeout(giveUp, timeoutMs);
        waiting.add(wake);
        aborted?.addEventListener('abort', giveUp);
        if (aborted?.aborted) giveUp();
      }),
  };
}
