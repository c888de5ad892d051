import type { Event } from '../gen/granary/events/v1/Event';
import type { KafkaMessage, ReceivedMessage } from '../kafka/messages';

/** An event as a message: the payload is the value, all other fields are in the key and the headers. */
export function toMessage(event: Event, topic: string): KafkaMessage {
  const { epoch, xid, pos } = event.position!;
  return {
    topic,
    key: event.key,
    value: event.payload,
    headers: {
      id: event.id,
      topic: event.topic,
      aggregate: event.aggregateId,
      sequence: event.aggregateSequence,
      type: event.type,
      at: event.at,
      position: `${epoch}/${xid}/${pos}`,
      ...(event.trace !== undefined && { traceparent: event.trace }),
      signatures: event.signatures,
    },
  };
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const headerNames = ['id', 'topic', 'aggregate', 'sequence', 'type', 'at', 'position'] as const;

/** The event of a message; undefined for a message that is not from a relay of ours. */
export function toEvent({ key, value, headers }: ReceivedMessage): Event | undefined {
  const [id, topic, aggregateId, sequence, type, time, position] = headerNames.map((name) => headers[name] ?? '');
  const [epoch, xid, pos] = (position ?? '').split('/');
  if (!uuid.test(id!) || !/^[1-9]\d{0,18}$/.test(sequence!) || Number.isNaN(Date.parse(time!))) return undefined;
  if (!topic || !type || ![epoch, xid, pos].every((part) => /^\d{1,20}$/.test(part ?? ''))) return undefined;
  return {
    id: id!,
    topic,
    key,
    type,
    at: time!,
    payload: value,
    aggregateId: aggregateId!,
    aggregateSequence: sequence!,
    position: { epoch: epoch!, xid: xid!, pos: pos! },
    ...(headers['traceparent'] !== undefined && { trace: headers['traceparent'] }),
    signatures: headers['signatures'] ?? '',
  };
}
