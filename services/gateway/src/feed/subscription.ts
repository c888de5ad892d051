import { hash } from 'node:crypto';
import type { FeedChannel } from '@granary/shared/gen/granary/data/v1/FeedChannel';

/** What one subscriber asks for under one name. Subscribers with the same channel get the same changes. */
export interface Subscription {
  /** What the subscriber calls it; undefined where it has no other. */
  name: string | undefined;
  channel: FeedChannel;
}

/** Tells a channel from others, wherever its request has it. */
export function channelKey({ collections, find, select, ...flags }: FeedChannel): string {
  const { view, omitsDocuments, onlyLatest, mayReadPrivate, isDelegated } = flags;
  const texts = [view, find.toString(), select.toString()];
  const text = JSON.stringify([collections, ...texts, omitsDocuments, onlyLatest, mayReadPrivate, isDelegated]);
  return hash('sha256', text, 'base64url');
}

/** Memory that a subscription takes beside the bytes of its filter and selection, about. */
const subscriptionBytes = 512;

/** Memory that subscriptions take. */
export const bytesOf = (subscriptions: readonly Subscription[]): number =>
  subscriptions.reduce(
    (sum, { channel: { find, select } }) => sum + subscriptionBytes + find.length + select.length,
    0,
  );

/** What a client asks for, and by what right. */
export interface FeedRequest {
  appId: string;
  /** `now`, a height or a cursor. */
  since: string;
  subscriptions: readonly Subscription[];
  /** The key by which it reads; undefined for a caller without one. */
  keyId: string | undefined;
  /** Whether a token of that key is shown in its place. */
  isByToken: boolean;
  /** Until when it may read; undefined: for as long as the key is valid. */
  expiresAtMs: number | undefined;
  /** The key under which the client is counted. */
  clientAddress: string;
}

/** Whether a subscriber may know that definitions of the app have changed. */
export const seesCatalog = (subscriptions: readonly Subscription[]): boolean =>
  subscriptions.every(({ channel }) => channel.mayReadPrivate && !channel.isDelegated);

/** Whether a subscriber has no right to more than what is public. */
export const isStranger = (subscriptions: readonly Subscription[]): boolean =>
  !subscriptions.every(({ channel }) => channel.mayReadPrivate);
