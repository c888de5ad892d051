import { addSource, counters, gauges, histograms } from '@granary/shared/telemetry/metrics';
import type { ReadTurns } from './read-turns';
import type { StreamSlots } from './stream-slots';

const none = { labels: [] };

/** What is known of the feeds of this gateway. */
export const feedMetrics = {
  live: gauges({
    name: 'granary_feed_streams_live',
    help: 'Feeds that get each change as it is committed; the others read on their own what they have missed.',
    ...none,
  }).with(),
  channels: gauges({
    name: 'granary_feed_channels',
    help: 'Different combinations of collection, filter, selection and rights in live feeds.',
    ...none,
  }).with(),
  changes: counters({ name: 'granary_feed_changes_total', help: 'Changes sent to clients of feeds.', ...none }).with(),
  fallenBehind: counters({
    name: 'granary_feed_fallen_behind_total',
    help: 'How often a client of a feed took less than there was, and read on its own after that.',
    ...none,
  }).with(),
  resets: counters({
    name: 'granary_feed_resets_total',
    help: 'Feeds that ended because their cursor was of another history of the app.',
    ...none,
  }).with(),
  windows: histograms({
    name: 'granary_feed_window_seconds',
    help: 'Time from the arrival of new changes until the last client of the app had been sent them.',
    ...none,
  }).with(),
};

/** Exports how many feeds there are, may be and wait, until the function that it returns is called. */
export const exportStreamCounts = (slots: StreamSlots, turns: ReadTurns): (() => void) =>
  addSource({
    families: [
      {
        name: 'granary_feed_streams',
        help: 'Open feeds and waiting pages of changes.',
        labels: [],
        type: 'gauge',
      },
      { name: 'granary_feed_streams_limit', help: 'How many of them there may be.', labels: [], type: 'gauge' },
      {
        name: 'granary_feed_turns_waiting',
        help: 'Feeds that wait for their turn to read what they begin with, or have missed.',
        labels: [],
        type: 'gauge',
      },
    ],
    collect: () => ({
      granary_feed_streams: [[[], slots.counts().used]],
      granary_feed_streams_limit: [[[], slots.counts().total]],
      granary_feed_turns_waiting: [[[], turns.waiting]],
    }),
  });
