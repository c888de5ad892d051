import { setTimeout as sleep } from 'node:timers/promises';
import type { App } from '@granary/client';
import { isGranaryError, isPassing } from '../failure.ts';
import { readTypes, writeTypes, type AppTypesText } from './types-file.ts';

/** The file is told what has become of it. */
export interface TypesListener {
  onWritten: (types: AppTypesText) => void;
  onUnchanged: (types: AppTypesText) => void;
  /** The service is away, or has too much to do; it is asked again. */
  onFailed: (error: Error) => void;
}

const retryMs = 1_000;

/**
 * Keeps a file current with the definitions of an app, through restarts of the service, until the signal is aborted,
 * whose reason it throws. Also throws GranaryError for what does not pass, such as a key that was revoked.
 */
export async function watchTypes(app: App, file: string, listener: TypesListener, signal: AbortSignal): Promise<void> {
  for (;;) {
    try {
      const feed = app.changes({ documents: false, mode: 'latest', signal });
      for await (const { event } of feed.withNotices()) {
        if (event === 'catalog') await renew(app, file, listener, signal);
      }
    } catch (error) {
      // A backup was restored, and its definitions with it.
      if (!isGranaryError(error) || error.code !== 'CURSOR_GONE') throw error;
    }
  }
}

/** Writes the file as soon as the service says what has to be in it. */
async function renew(app: App, file: string, listener: TypesListener, signal: AbortSignal): Promise<void> {
  for (;;) {
    try {
      const types = await readTypes(app, signal);
      const isNew = await writeTypes(file, types.text);
      return isNew ? listener.onWritten(types) : listener.onUnchanged(types);
    } catch (error) {
      signal.throwIfAborted();
      if (!isPassing(error)) throw error;
      listener.onFailed(error as Error);
    }
    await sleep(retryMs, undefined, { signal }).catch(() => signal.throwIfAborted());
  }
}
