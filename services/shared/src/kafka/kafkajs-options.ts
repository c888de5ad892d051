import { setTimeout as delay } from 'node:timers/promises';

/** How long kafkajs retries by itself, 2 to 3 s; after that its callers report the error and retry. */
export const kafkajsRetry = { initialRetryTime: 100, maxRetryTime: 1_000, retries: 5 };

/** How long a client that hangs may delay a stop. */
const closeTimeoutMs = 5_000;

/** Waits until a client is closed, but not for ever: one that hangs is abandoned. */
export async function closeWithTimeout(closing: Promise<void>): Promise<void> {
  const closed = new AbortController();
  await Promise.race([
    closing.catch(() => undefined),
    delay(closeTimeoutMs, undefined, { signal: closed.signal, ref: false }).catch(() => undefined),
  ]);
  closed.abort();
}
