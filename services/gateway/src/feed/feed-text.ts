import type { StreamEvent } from './stream-events';

/** How events are written: server-sent events, or a JSON object on each line. */
export type FeedFormat = 'sse' | 'ndjson';

export const contentTypes: Readonly<Record<FeedFormat, string>> = {
  sse: 'text/event-stream; charset=utf-8',
  ndjson: 'application/x-ndjson; charset=utf-8',
};

/** Keeps a connection in use. */
export const heartbeats: Readonly<Record<FeedFormat, Buffer>> = {
  sse: Buffer.from(':\n\n'),
  ndjson: Buffer.from('\n'),
};

/** The events of changes as they are sent. */
export function eventsText(format: FeedFormat, events: readonly StreamEvent[]): Buffer {
  const parts: Buffer[] = [];
  for (const event of events) {
    if (format === 'sse') {
      const id = event.cursor === undefined ? '' : `id: ${event.cursor}\n`;
      parts.push(Buffer.from(`${id}event: ${event.kind}\ndata: {${namesText(event)}`), ...tailOf(event, '}\n\n'));
    } else {
      parts.push(...objectParts(event, '}\n'));
    }
  }
  return Buffer.concat(parts);
}

/** The events of a page, as the elements of a JSON array. */
export const pageText = (events: readonly StreamEvent[]): Buffer =>
  Buffer.concat(events.flatMap((event, index) => objectParts(event, index + 1 < events.length ? '},' : '}')));

function objectParts(event: StreamEvent, end: string): Buffer[] {
  const cursor = event.cursor === undefined ? '' : `"cursor":"${event.cursor}",`;
  return [Buffer.from(`{"event":"${event.kind}",${cursor}${namesText(event)}`), ...tailOf(event, end)];
}

const namesText = ({ names }: StreamEvent): string => (names.length === 0 ? '' : `"as":${JSON.stringify(names)},`);

const tailOf = ({ members, isLast }: StreamEvent, end: string): Buffer[] => [
  members,
  Buffer.from(isLast ? `,"last":true${end}` : end),
];

/** An event that is no change. `cursor`: where a feed continues behind it, if it moves that. */
export function noticeText(format: FeedFormat, name: string, data: object, cursor?: string): Buffer {
  if (format === 'ndjson') {
    const head = cursor === undefined ? { event: name } : { event: name, cursor };
    return Buffer.from(`${JSON.stringify({ ...head, ...data })}\n`);
  }
  const id = cursor === undefined ? '' : `id: ${cursor}\n`;
  return Buffer.from(`${id}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
}

/** How long a client that was told nothing else waits before it connects again. */
const retryMs = 2_000;

/** The first bytes of a stream. */
export const openingText = (format: FeedFormat, appId: string, head: number): Buffer =>
  Buffer.concat([
    Buffer.from(format === 'sse' ? `retry: ${retryMs}\n\n` : ''),
    noticeText(format, 'ready', { app_id: appId, head }),
  ]);

/** The last bytes of a stream. `retryAfterMs`: when the client should come again; undefined: not with this request. */
export function endText(format: FeedFormat, code: string, message: string, retryAfterMs: number | undefined): Buffer {
  const retry = retryAfterMs !== undefined;
  const data = { code, message, retry, ...(retry && { retry_after_ms: retryAfterMs }) };
  const line = retry && format === 'sse' ? `retry: ${retryAfterMs}\n` : '';
  return Buffer.concat([Buffer.from(line), noticeText(format, 'end', data)]);
}
