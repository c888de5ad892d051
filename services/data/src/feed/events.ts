import type { FeedEvent } from '@granary/shared/gen/granary/data/v1/FeedEvent';
import { isAll } from '../query/language/condition';
import { hidesHash, type Channel } from './channel';
import { putMembers, removeMembers, type ShownDocuments } from './change-text';
import type { Delivery } from './deliveries';
import type { LogEntry } from './log';
import type { StoredVersion } from './versions';

/** Events, each with the channels that get the same bytes. */
export class SharedEvents {
  private readonly events = new Map<string, FeedEvent>();

  get list(): FeedEvent[] {
    return [...this.events.values()];
  }

  /** Adds a channel to the event with a key, whose bytes are made once. */
  add(key: string, channel: number, kind: 'put' | 'remove', members: () => Buffer): void {
    const event = this.events.get(key);
    if (event) event.channels.push(channel);
    else this.events.set(key, { kind, members: members(), channels: [channel] });
  }
}

/** The events of one entry, each with the channels that get the same bytes; removals first. */
export function eventsOf(
  entry: LogEntry,
  version: StoredVersion | undefined,
  { puts, removals }: Delivery,
  channels: readonly Channel[],
  shown: ShownDocuments | undefined,
): FeedEvent[] {
  const events = new SharedEvents();
  for (const [channel, reason] of removals) {
    const hidesId = reason === 'erased' && mayNotKnowIds(channels[channel]!);
    events.add(`${reason} ${hidesId}`, channel, 'remove', () => removeMembers(entry, version, reason, hidesId));
  }
  for (const channel of puts) {
    const { shownAs, hasDocuments } = channels[channel]!;
    const document = () => {
      if (!hasDocuments) return undefined;
      return version?.text && shown ? shown.textFor(channels[channel]!, version.text) : null;
    };
    events.add(`put ${shownAs}`, channel, 'put', () =>
      putMembers(entry, version, document(), !hidesHash(channels[channel]!)),
    );
  }
  return events.list;
}

/** Of what is erased nobody knows any more whether the filter of a token let it through. */
const mayNotKnowIds = ({ isDelegated, find }: Channel): boolean => isDelegated && !isAll(find);
