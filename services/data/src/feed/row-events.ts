import type { FeedEvent } from '@granary/shared/gen/granary/data/v1/FeedEvent';
import { withoutLineEnds } from '../json/line-ends';
import { project } from '../json/project';
import type { Channel } from './channel';
import type { ViewEntry } from './view-rows';

/** The events of a changed row of a view, each with the channels that get the same bytes. */
export function rowEventsOf(entry: ViewEntry, readers: readonly number[], channels: readonly Channel[]): FeedEvent[] {
  const { height, view, id, text } = entry;
  const members = JSON.stringify({ height: Number(height), view: view.name, id }).slice(1, -1);
  if (text === undefined) {
    return [{ kind: 'remove', members: Buffer.from(`${members},"reason":"deleted"`), channels: [...readers] }];
  }
  const events = new Map<string, FeedEvent>();
  for (const index of readers) {
    const { shownAs, hasDocuments, projection } = channels[index]!;
    const event = events.get(shownAs);
    if (event) {
      event.channels.push(index);
      continue;
    }
    const bytes = hasDocuments
      ? Buffer.concat([Buffer.from(`${members},"document":`), withoutLineEnds(project(text, projection))])
      : Buffer.from(members);
    events.set(shownAs, { kind: 'put', members: bytes, channels: [index] });
  }
  return [...events.values()];
}
