import { pause } from '@granary/shared/concurrency/backoff';
import { windowPauseMs, windowPauseMsMin } from '@granary/shared/concurrency/window-pause';
import type { ReadChangesRequest } from '@granary/shared/gen/granary/data/v1/ReadChangesRequest';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import type { ServiceError } from '@granary/shared/errors';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { Call } from '@granary/shared/rpc/types';
import { findApp, type App } from '../catalog/app';
import { needsKey } from '../query/language/paging';
import { withFreshSource } from '../query/execute/read-page';
import { AppDatabases } from '../query/execute/read-scheduler';
import { lookUpCollection, type ReadContext } from '../reads/read-context';
import { pricesOfView } from '../reads/view-source';
import type { ViewRef } from '../views/view';
import type { ChannelSet, ChannelSets } from './channel-set';
import { formatCursor, parseSince, shortHash, type Since } from './cursor';
import { readFeedHead, type FeedHead } from './feed-head';
import type { HeadSignals } from './head-signals';
import { readWindow, type FeedWindow } from './window';

/** The context of the feed. */
export interface FeedContext extends ReadContext {
  headSignals: HeadSignals;
  channelSets: ChannelSets;
}

/** A request that has seen changes, none of them for its channels, is answered after so long, with its new position. */
const progressAfterMs = 4_000;
/** Pages that wait are read one by one at each change, unlike feeds, so not as often. */
const pagePauseMs = 250;
/** The time that is left for the answer at the end of a wait. */
const answerMarginMs = 1_000;

/** A window, with what was known when it was read. */
interface ReadAt {
  head: FeedHead;
  window: FeedWindow;
  /** How long it took to read. */
  readMs: number;
}

/**
 * Reads the changes of an app behind a position for the channels of a request. Where there are none it waits for some,
 * for as long as the request says. Throws APP_NOT_FOUND, VALIDATION_FAILED, INVALID_QUERY, CURSOR_AHEAD, CURSOR_GONE,
 * CHANNELS_UNKNOWN.
 */
export async function readChanges(
  context: FeedContext,
  request: ReadChangesRequest,
  call: Pick<Call, 'signal' | 'deadlineMs'>,
): Promise<ReadChangesResponse> {
  const set = context.channelSets.of(request.channelsDigest, request.channels);
  const since = parseSince(request.since);
  // From 0 on a view gives its present rows.
  const isPast = since.kind === 'height' && !(set.hasOnlyViews && since.height === 0n);
  if (isPast && !set.channels.every(({ mayReadPrivate }) => mayReadPrivate)) throw needsKey('past');
  const app = await findApp(context.fast, request.appId);
  const watch = request.waitMs > 0 ? context.headSignals.watch(app) : undefined;
  try {
    const first = await readAt(context, app, request, set, since, call);
    return responseOf(watch ? await waitForChanges(context, app, request, set, first, watch, call) : first);
  } finally {
    watch?.close();
  }
}

/** Reads on from a first window that has nothing for the channels. */
async function waitForChanges(
  context: FeedContext,
  app: App,
  request: ReadChangesRequest,
  set: ChannelSet,
  first: ReadAt,
  watch: ReturnType<HeadSignals['watch']>,
  call: Pick<Call, 'signal' | 'deadlineMs'>,
): Promise<ReadAt> {
  const startedAtMs = performance.now();
  const waitMs = Math.min(request.waitMs, call.deadlineMs - Date.now() - answerMarginMs);
  const leastPauseMs = request.channelsDigest.length > 0 ? windowPauseMsMin : pagePauseMs;
  let last = first;
  for (;;) {
    const hasAdvanced = cursorOf(last) !== cursorOf(first);
    const leftMs = (hasAdvanced ? Math.min(waitMs, progressAfterMs) : waitMs) - (performance.now() - startedAtMs);
    if (isAnswer(last, request) || leftMs <= 0 || context.headSignals.isStopping || call.signal.aborted) return last;
    if (last.window.isWhole) await watch.changed(leftMs, call.signal);
    const { end, hash, initialEnd } = last.window;
    const since: Since = { kind: 'cursor', position: end, hash: shortHash(hash), initialEnd };
    last = await readAt(context, app, { ...request, isOpening: false }, set, since, call);
    if (isAnswer(last, request)) return last;
    const pauseMs = windowPauseMs({ takenMs: last.readMs, hasMore: !last.window.isWhole, leastPauseMs });
    await pause(Math.min(pauseMs, leftMs), call.signal);
  }
}

const isAnswer = ({ head, window }: ReadAt, { catalogRevision }: ReadChangesRequest): boolean =>
  window.changes.length > 0 ||
  window.refusals.size > 0 ||
  (catalogRevision !== '0' && catalogRevision !== head.catalogRevision.toString());

async function readAt(
  context: FeedContext,
  app: App,
  request: ReadChangesRequest,
  set: ChannelSet,
  since: Since,
  call: Pick<Call, 'signal'>,
): Promise<ReadAt> {
  const startedAtMs = performance.now();
  return await withFreshSource(async (isRepeated) => {
    if (isRepeated) context.readers.forget(app.appId);
    const { mayReadPrivate } = set;
    const databases = new AppDatabases(context, { appId: app.appId, mayReadPrivate }, call.signal);
    const limits = { changesMax: request.limit, bytesMax: request.bytesMax, isOpening: request.isOpening };
    const read = async (small: Queryable, db: Queryable): Promise<ReadAt> => {
      const head = await readFeedHead(small, app, since);
      const lookUp = async (name: string) => {
        const collection = await lookUpCollection(context, app.appId, name, isRepeated);
        // A collection that was cached before a change of the catalog may be public there still.
        const isStale = collection !== undefined && collection.revision < head.catalogRevision;
        return isStale ? lookUpCollection(context, app.appId, name, true) : collection;
      };
      const source = { db, fast: context.fast, app, lookUp, pricesOf: (view: ViewRef) => pricesOfView(context, view) };
      const window = await readWindow(source, head, set, limits);
      return { head, window, readMs: performance.now() - startedAtMs };
    };
    // The rows of views have no versions: they are read with the head whose state they are.
    return set.views.size > 0 ? databases.snapshot((tx) => read(tx, tx)) : read(context.fast, databases.pool);
  });
}

const cursorOf = ({ window: { end, hash, initialEnd } }: ReadAt): string => formatCursor(end, hash, initialEnd);

function responseOf(last: ReadAt): ReadChangesResponse {
  const { head, window, readMs } = last;
  return {
    cursor: cursorOf(last),
    head: head.height.toString(),
    more: !window.isWhole,
    completeHeight: window.completeHeight.toString(),
    catalogRevision: head.catalogRevision.toString(),
    changes: window.changes,
    refusals: [...window.refusals].map(([channel, error]) => ({ channel, error: operationError(error) })),
    readMs,
  };
}

const operationError = ({ code, reason, message, details }: ServiceError) => ({
  status: code,
  reason,
  message,
  detailsJson: Buffer.from(JSON.stringify(details)),
});
