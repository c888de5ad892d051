import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto';
import type { Event } from '../gen/granary/events/v1/Event';
import type { Position } from '../gen/granary/events/v1/Position';

/**
 * Events are signed by the service that publishes them, once for each service that reads them, with a key derived from
 * the one that the two share for calls (see token.ts): a reader can verify events, and can forge them only for itself.
 *
 * A signature is `<key id>.<MAC in base64url>`. There is one for each key, separated by commas: a reader has an old and
 * a new key while its secret is being rotated.
 */
export interface EventSigner {
  /** Signatures of an event for these readers. Throws a ConfigError when this service has no keys of readers. */
  sign(event: Event, readers: readonly string[]): string;
  /** Signatures of a page of the outbox, so that nobody can make a reader skip events. */
  signPage(page: OutboxPage, reader: string): string;
}

export interface EventVerifier {
  /** Whether the publisher has signed it for this service. Throws a ConfigError when this service has no secret. */
  isSigned(event: Event): boolean;
  isPageSigned(page: OutboxPage, signatures: string): boolean;
}

/** A request to an outbox, and the part of the response that moves the cursor of the reader. */
export interface OutboxPage {
  consumer: string;
  topics: readonly string[];
  after: Position;
  next: Position;
  events: ReadonlyArray<Pick<Event, 'id'>>;
}

/** Longer texts are not parsed. */
const signaturesMax = 1_024;
const keyIdLength = 8;

/** A key for events, from the one for calls. */
interface EventKey {
  id: string;
  key: KeyObject;
}

function eventKey(callKey: KeyObject): EventKey {
  const derive = (what: string) => createHmac('sha256', callKey).update(what).digest();
  return {
    id: derive('granary event key id').toString('hex').slice(0, keyIdLength),
    key: createSecretKey(derive('granary event key v1')),
  };
}

const positionText = ({ epoch, xid, pos }: Position): string => `${epoch}/${xid}/${pos}`;

/** All of an event: its fields as JSON, which has no line break, and then the bytes of the payload. */
function eventMac({ key }: EventKey, event: Event): Buffer {
  const { topic, aggregateId, aggregateSequence, type, id, at: time, position, trace } = event;
  const about = [
    topic,
    event.key,
    aggregateId,
    aggregateSequence,
    type,
    id,
    time,
    positionText(position!),
    trace ?? '',
  ];
  return createHmac('sha256', key)
    .update(`granary event\n${JSON.stringify(about)}\n`)
    .update(event.payload)
    .digest();
}

/** Includes the ids, because an event that is removed from a page would be skipped. */
function pageMac({ key }: EventKey, { consumer, topics, after, next, events }: OutboxPage): Buffer {
  const ids = events.map(({ id }) => id);
  const about = JSON.stringify([consumer, topics, positionText(after), positionText(next), ids]);
  return createHmac('sha256', key).update(`granary outbox page\n${about}`).digest();
}

/** `keysOf` returns the keys that a reader signs its calls to this service with. */
export function createEventSigner(keysOf: (reader: string) => readonly KeyObject[]): EventSigner {
  const keysByReader = new Map<string, readonly EventKey[]>();
  const eventKeysOf = (reader: string): readonly EventKey[] => {
    let keys = keysByReader.get(reader);
    if (!keys) {
      keys = keysOf(reader).map(eventKey);
      // Keys are kept for existing readers only, which are few.
      if (keys.length > 0) keysByReader.set(reader, keys);
    }
    return keys;
  };
  const signed = (readers: readonly string[], mac: (key: EventKey) => Buffer): string =>
    readers
      .flatMap((reader) => eventKeysOf(reader).map((key) => `${key.id}.${mac(key).toString('base64url')}`))
      .join(',');
  return {
    sign: (event, readers) => signed(readers, (key) => eventMac(key, event)),
    signPage: (page, reader) => signed([reader], (key) => pageMac(key, page)),
  };
}

/** `callKey`: with which this service signs its calls to the publisher. */
export function createEventVerifier(callKey: KeyObject): EventVerifier {
  const key = eventKey(callKey);
  const isIn = (signatures: string, mac: () => Buffer): boolean => {
    if (signatures.length > signaturesMax) return false;
    const mine = signatures.split(',').find((each) => each.startsWith(`${key.id}.`));
    if (mine === undefined) return false;
    const actual = Buffer.from(mine.slice(keyIdLength + 1), 'base64url');
    const expected = mac();
    return actual.length === expected.length && timingSafeEqual(actual, expected);
  };
  return {
    isSigned: (event) => isIn(event.signatures, () => eventMac(key, event)),
    isPageSigned: (page, signatures) => isIn(signatures, () => pageMac(key, page)),
  };
}
