import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import { positionOf, type Position } from './position';

/** One event of a change, for one subscriber or for several that ask for the same. */
export interface StreamEvent {
  kind: string;
  /** The members of its JSON object, without the braces. */
  members: Buffer;
  /** The names of the subscriptions that it is for; empty where there is one without a name. */
  names: string[];
  /** Where a feed continues behind it; undefined where another event of the same change follows. */
  cursor: string | undefined;
  /** Behind its change. */
  position: Position;
  height: number;
  /** Whether it is the last of its commit. */
  isLast: boolean;
}

/** A subscription by name, of a subscriber or a group of them. */
export interface Route<Target> {
  target: Target;
  name: string | undefined;
}

/** The events of a window for each target, in order. `routes`: by the place of a channel in the request. */
export function eventsByTarget<Target>(
  { changes, completeHeight }: Pick<ReadChangesResponse, 'changes' | 'completeHeight'>,
  routes: ReadonlyArray<ReadonlyArray<Route<Target>>>,
): Map<Target, StreamEvent[]> {
  const all = new Map<Target, StreamEvent[]>();
  for (const { height, cursor, events } of changes) {
    const position = positionOf(cursor);
    const ofChange = new Map<Target, StreamEvent[]>();
    for (const { kind, members, channels } of events) {
      const ofEvent = new Map<Target, StreamEvent>();
      for (const { target, name } of channels.flatMap((channel) => routes[channel] ?? [])) {
        let event = ofEvent.get(target);
        if (!event) {
          const place = { position, height: Number(height), cursor: undefined, isLast: false };
          ofEvent.set(target, (event = { kind, members, names: [], ...place }));
          append(ofChange, target, event);
        }
        if (name !== undefined) event.names.push(name);
      }
    }
    for (const [target, targetEvents] of ofChange) {
      targetEvents.at(-1)!.cursor = cursor;
      for (const event of targetEvents) append(all, target, event);
    }
  }
  for (const targetEvents of all.values()) markLast(targetEvents, Number(completeHeight));
  return all;
}

function append<Target>(lists: Map<Target, StreamEvent[]>, target: Target, event: StreamEvent): void {
  const list = lists.get(target);
  if (list) list.push(event);
  else lists.set(target, [event]);
}

function markLast(events: readonly StreamEvent[], completeHeight: number): void {
  for (const [index, event] of events.entries()) {
    const next = events[index + 1];
    event.isLast = next ? next.height !== event.height : event.height <= completeHeight;
  }
}

/** The height of a commit of which events were sent, and perhaps not all; undefined where there is none. */
export function openHeightAfter(events: readonly StreamEvent[], before: number | undefined): number | undefined {
  const last = events.at(-1);
  if (!last) return before;
  return last.isLast ? undefined : last.height;
}
