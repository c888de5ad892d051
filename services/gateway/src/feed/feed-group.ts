import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import type { Logger } from '@granary/shared/logger';
import type { KeyWatch } from '../clients/key-watch';
import type { FeedData } from './feed-reader';
import { eventsText, noticeText, type FeedFormat } from './feed-text';
import type { Position } from './position';
import type { ReadTurns } from './read-turns';
import type { StreamEvent } from './stream-events';
import type { FeedRequest, Subscription } from './subscription';

/** The longest time without an event while the log of an app is read on. */
export const progressEveryMs = 5_000;

/** What all streams of a gateway share. */
export interface StreamContext {
  data: FeedData;
  keys: KeyWatch;
  turns: ReadTurns;
  log: Logger;
  /** The time between heartbeats. */
  heartbeatMs: number;
}

/** A stream as its group has it. */
export interface GroupMember {
  readonly request: FeedRequest;
  readonly format: FeedFormat;
  /** Behind what it has read on its own. */
  readonly cursor: string;
  readonly position: Position;
  /** Aborted when it ends. */
  readonly signal: CancelSignal;
  /** The revision of the catalog that it knows. */
  readonly catalogRevision: string;
  /** Takes what its group gets: the bytes of a window. Returns whether the client keeps up. */
  receive(bytes: Buffer, cursor: string): boolean;
  /** Reads on its own again, from a cursor on. `openHeight`: of a commit of which more changes may follow. */
  fallBehind(cursor: string, openHeight: number | undefined): void;
  /** Ends because of an error that will not pass. */
  fail(error: unknown): void;
  /** Tells the client that definitions of the app have changed, where that is new to it and it may know. */
  notifyCatalog(revision: string): void;
}

/** Streams that get the same bytes. */
export interface FeedGroup {
  readonly key: string;
  readonly format: FeedFormat;
  readonly subscriptions: readonly Subscription[];
  readonly channelKeys: readonly string[];
  /** The streams of the group, whether they get its windows or still read on their own. */
  readonly members: Set<GroupMember>;
  readonly live: Set<GroupMember>;
  /** Streams that are about to become live. */
  joining: number;
  /** Whether the windows that come have what the group asks for. */
  isIncluded: boolean;
  /** Whether a subscription has each document once in a window. */
  readonly hasLatest: boolean;
  /** The live feed has to come so far before its windows have what the group asks for. */
  startsAt: Position | undefined;
  /** When its streams were last told a cursor. */
  toldAtMs: number;
  /** The height of a commit of which more changes may follow. */
  openHeight: number | undefined;
}

/** Tells the streams that get other bytes apart. */
export function groupKey({ format, request: { subscriptions } }: GroupMember, channelKeys: readonly string[]): string {
  return JSON.stringify([format, subscriptions.map(({ name }) => name ?? null), channelKeys]);
}

/** A group without streams, for those like the one of the arguments. */
export function newGroup(
  key: string,
  channelKeys: readonly string[],
  { format, request: { subscriptions } }: GroupMember,
): FeedGroup {
  return {
    key,
    format,
    subscriptions,
    channelKeys,
    members: new Set(),
    live: new Set(),
    joining: 0,
    isIncluded: false,
    hasLatest: subscriptions.some(({ channel }) => channel.onlyLatest),
    startsAt: undefined,
    toldAtMs: 0,
    openHeight: undefined,
  };
}

/** What a window is to a group; undefined where it is nothing. */
export function windowText(
  group: FeedGroup,
  events: readonly StreamEvent[],
  window: ReadChangesResponse,
  hasMoved: boolean,
): Buffer | undefined {
  const nowMs = performance.now();
  const last = events.at(-1);
  if (last) {
    group.toldAtMs = nowMs;
    group.openHeight = last.isLast ? undefined : last.height;
    return eventsText(group.format, events);
  }
  const isOpen = group.openHeight !== undefined;
  const isCommitOver = isOpen && Number(window.completeHeight) >= group.openHeight!;
  // Within a commit of which a part was told a progress would say that the commit is over.
  if (!isCommitOver && (isOpen || !hasMoved || nowMs - group.toldAtMs < progressEveryMs)) return undefined;
  group.toldAtMs = nowMs;
  if (isCommitOver) group.openHeight = undefined;
  return noticeText(group.format, 'progress', { head: Number(window.head) }, window.cursor);
}
