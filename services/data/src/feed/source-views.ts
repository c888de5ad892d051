import { conflict, ServiceError } from '@granary/shared/errors';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import type { ReadPrice } from '../catalog/read-price';
import { needsKey } from '../query/language/paging';
import { findViews, viewNotFound, type ViewRef } from '../views/view';
import type { Channel } from './channel';
import type { ChannelSet } from './channel-set';
import { comparePositions, CURSOR_GONE, rowsGone } from './cursor';
import type { FeedHead } from './feed-head';
import { notSold } from './source-collections';
import type { RowSource } from './view-rows';

export const VIEW_HAS_NO_CHANGES = 'VIEW_HAS_NO_CHANGES';

/** The views of an app, as the channels of one request may follow them. */
export interface SourceViews {
  /** The views that have rows: one that is being built has none. */
  sources: readonly RowSource[];
  /** The channels of each, by its number. */
  channels: ReadonlyMap<bigint, readonly number[]>;
  /** The errors of the channels that may not follow the view that they name, by the places of these channels. */
  refused: ReadonlyMap<number, ServiceError>;
  /** Whether a refusal is of the position alone, so that a later one would not be refused. */
  isGone: boolean;
}

/** The position of a feed, and the end of the log when it began at the start. */
export type ViewsStart = Pick<FeedHead, 'position' | 'initialEnd'>;

/** The prices of the reads of a view. */
export type PricesOf = (view: ViewRef) => Promise<readonly ReadPrice[]>;

/** Looks up the views that channels name. `db` reads from the snapshot of the window. */
export async function readSourceViews(
  { db, app, pricesOf }: { db: Queryable; app: App; pricesOf: PricesOf },
  { channels, views: names, excess }: ChannelSet,
  start: ViewsStart,
): Promise<SourceViews> {
  const refused = new Map<number, ServiceError>();
  const readers = new Map<bigint, number[]>();
  if (names.size === 0) return { sources: [], channels: readers, refused, isGone: false };
  const refs = new Map((await findViews(db, app, [...names])).map((view) => [view.name, view]));
  for (const [index, channel] of channels.entries()) {
    if (channel.view === undefined || excess.has(index)) continue;
    const view = refs.get(channel.view);
    const refusal = view ? await refusalOf(pricesOf, view, channel, start) : viewNotFound(channel.view);
    if (refusal) refused.set(index, refusal);
    else readers.set(view!.number, [...(readers.get(view!.number) ?? []), index]);
  }
  const sources = [...refs.values()].flatMap((view) => (readers.has(view.number) ? sourceOf(view) : []));
  const isGone = [...refused.values()].some(({ reason }) => reason === CURSOR_GONE);
  return { sources, channels: readers, refused, isGone };
}

async function refusalOf(
  pricesOf: PricesOf,
  view: ViewRef,
  { mayReadPrivate }: Channel,
  { position, initialEnd }: ViewsStart,
): Promise<ServiceError | undefined> {
  const { name, readAccess, keepsChanges, changesHeight, changesPlace } = view;
  if (!mayReadPrivate && readAccess === 'private') return needsKey('view');
  if (!mayReadPrivate && view.mayHavePrices && (await pricesOf(view)).length > 0) {
    return notSold(`view ${name}`);
  }
  if (!keepsChanges) return noChanges(view);
  const first = { height: changesHeight!, place: changesPlace!, row: 0n };
  // A feed that began with nothing behind it has no row from before.
  return comparePositions(initialEnd ?? position, first) >= 0 ? undefined : rowsGone(name);
}

const sourceOf = ({ number, name, tableNumber, rowSecret }: ViewRef): RowSource[] =>
  tableNumber === null ? [] : [{ number, name, tableNumber, rowSecret }];

const noChanges = ({ name, refreshMode }: ViewRef): ServiceError =>
  conflict(
    VIEW_HAS_NO_CHANGES,
    refreshMode === 'live'
      ? `The changes of the view ${name} are not kept: change it with {"changes": true}`
      : `The view ${name} is lazy: only a live one with {"changes": true} can be followed`,
  );
