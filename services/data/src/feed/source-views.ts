import { conflict, ServiceError } from '@granary/shared/errors';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import type { ReadPrice } from '../catalog/read-price';
import { needsKey } from '../query/language/paging';
import { findViews, viewNotFound, type ViewRef } from '../views/view';
import type { Channel } from './channel';
import type { ChannelSet } from './channel-set';
import { comparePositions, rowsGone, type Position } from './cursor';
import { notSold } from './source-collections';
import type { RowSource } from './view-rows';

export const VIEW_HAS_NO_CHANGES = 'VIEW_HAS_NO_CHANGES';

/** The views of an app, as the channels of one request may follow them. */
export interface SourceViews {
  /** Those with rows that are kept: one that is being built has none. */
  sources: readonly RowSource[];
  /** The channels of each, by its number. */
  channels: ReadonlyMap<bigint, readonly number[]>;
  /** The errors of the channels that may not follow the view that they name, by the places of these channels. */
  refused: ReadonlyMap<number, ServiceError>;
}

/** Where a feed begins to follow views. */
export interface ViewsStart {
  position: Position;
  /** Whether it has no rows yet, so that it may begin wherever the log of a view begins. */
  isFresh: boolean;
}

/** The prices of the reads of a view. */
export type PricesOf = (view: ViewRef) => Promise<readonly ReadPrice[]>;

/** Looks up the views that channels name. `db` reads from the snapshot of the window. */
export async function readSourceViews(
  { db, app, pricesOf }: { db: Queryable; app: App; pricesOf: PricesOf },
  { channels, views: names }: ChannelSet,
  start: ViewsStart,
): Promise<SourceViews> {
  const refused = new Map<number, ServiceError>();
  const readers = new Map<bigint, number[]>();
  if (names.size === 0) return { sources: [], channels: readers, refused };
  const refs = new Map((await findViews(db, app, [...names])).map((view) => [view.name, view]));
  for (const [index, channel] of channels.entries()) {
    if (channel.view === undefined) continue;
    const view = refs.get(channel.view);
    const refusal = view ? await refusalOf(pricesOf, view, channel, start) : viewNotFound(channel.view);
    if (refusal) refused.set(index, refusal);
    else readers.set(view!.number, [...(readers.get(view!.number) ?? []), index]);
  }
  const sources = [...refs.values()].flatMap((view) => (readers.has(view.number) ? sourceOf(view) : []));
  return { sources, channels: readers, refused };
}

async function refusalOf(
  pricesOf: PricesOf,
  view: ViewRef,
  { mayReadPrivate }: Channel,
  { position, isFresh }: ViewsStart,
): Promise<ServiceError | undefined> {
  const { name, readAccess, keepsChanges, changesHeight, changesPlace } = view;
  if (!mayReadPrivate && readAccess === 'private') return needsKey('view');
  if (!mayReadPrivate && view.mayHavePrices && (await pricesOf(view)).length > 0) {
    return notSold(`view ${name}`);
  }
  if (!keepsChanges) return noChanges(view);
  const floor = { height: changesHeight!, place: changesPlace!, row: 0n };
  return isFresh || comparePositions(position, floor) > 0 ? undefined : rowsGone(name);
}

const sourceOf = ({ number, name, tableNumber, changesHeight, changesPlace }: ViewRef): RowSource[] =>
  tableNumber === null ? [] : [{ number, name, tableNumber, floor: { height: changesHeight!, place: changesPlace! } }];

const noChanges = ({ name, refreshMode }: ViewRef): ServiceError =>
  conflict(
    VIEW_HAS_NO_CHANGES,
    refreshMode === 'live'
      ? `The changes of the view ${name} are not kept: change it with {"changes": true}`
      : `The view ${name} is lazy: only a live one with {"changes": true} can be followed`,
  );
