import type { ServerResponse } from 'node:http';
import type { PumpObserver } from '@granary/shared/http/pipe';

/** Resolves once the client has room for more, or has gone. */
export async function whenDrained(
  response: ServerResponse,
  observer?: Pick<PumpObserver, 'blocked' | 'unblocked'>,
): Promise<void> {
  if (!response.writableNeedDrain || response.destroyed) return;
  observer?.blocked();
  await new Promise<void>((resolve) => {
    const done = () => {
      response.off('drain', done).off('close', done);
      resolve();
    };
    response.on('drain', done).on('close', done);
  });
  observer?.unblocked();
}
