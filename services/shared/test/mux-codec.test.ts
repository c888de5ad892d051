import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Batch } from '@granary/shared/gen/granary/mux/v1/Batch';
import type { MuxDefinition } from '@granary/shared/gen/granary/mux/v1/Mux';
import { seededRandom } from '@granary/testing/random';
import { partsOf, seedOf } from '@granary/testing/seeds';
import { loadService } from '@granary/shared/rpc/protos';
import { muxDefinition } from '@granary/shared/mux/protocol';
import { answerDeserializer, partsSerializer, sliceParts } from '@granary/shared/mux/answer';
import { decodeBatch, encodeBatch, type OutgoingBatch, type OutgoingFrame } from '@granary/shared/mux/codec';
import { content, dataDefinition } from './support/mux-fixture';

/** The same messages in the hands of protobufjs, which reads them from the proto. */
const { requestSerialize, responseDeserialize } = loadService<MuxDefinition>('mux', 'Mux').Stream;

let random = seededRandom(seedOf('shared/mux-codec'));

/** Among them the first and the last number of each length on the wire. */
const number = () => pick([0, 1, 127, 128, 16_383, 16_384, 2 ** 21 - 1, 2 ** 21, 2 ** 28, 2 ** 31, 2 ** 32 - 1]);
const text = () => pick(['', 'a', '/granary.data.v1.Data/Store', 'ünïcödé 🜁', 'x'.repeat(127), 'é'.repeat(9_000)]);
const bytes = () => randomBytes(pick([0, 1, 127, 128, 400, 16_384, 70_000]));
const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!;
const several = <T>(make: () => T): T[] => Array.from({ length: Math.floor(random() * 4) }, make);

const call = () => ({
  id: number(),
  method: text(),
  timeoutMs: number(),
  requestId: text(),
  request: bytes(),
  // A text that is there and empty is never sent.
  ...pick([{}, { trace: `00-${text()}` }]),
});
const failure = () => ({ code: number(), message: text(), reason: text(), details: bytes() });
const frame = (): OutgoingFrame => ({
  id: number(),
  ...pick([{ payload: several(bytes), more: pick([true, false]) }, { failure: failure() }]),
});
const batch = (): OutgoingBatch => ({
  ...pick([{}, { calls: several(call) }]),
  ...pick([{}, { cancelled: several(number) }]),
  ...pick([{}, { frames: several(frame) }]),
  ...pick([{}, { goingAway: pick([true, false]) }]),
});

/** `toEqual` looks at every byte of a Buffer by itself, which takes seconds here. */
function expectSame(got: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(got, expected)) expect(got).toEqual(expected);
}

/** What the other side should see of a batch. */
const received = ({ calls = [], cancelled = [], frames = [], goingAway = false }: OutgoingBatch): Batch => ({
  calls: [...calls],
  cancelled: [...cancelled],
  frames: frames.map(({ id, payload = [], more = false, failure = null }) => ({
    id,
    payload: Buffer.concat(payload),
    more,
    failure: failure && { ...failure },
  })),
  goingAway,
});

const parts = partsOf('shared/mux-codec', 500);
test.each(parts)('what is written here is read by protobufjs, and the other way round (seed $seed)', (part) => {
  random = seededRandom(part.seed);
  for (let times = 0; times < part.cases; times++) {
    const sent = batch();
    const expected = received(sent);
    expectSame(responseDeserialize(muxDefinition.Stream.requestSerialize(sent)), expected);
    expectSame(responseDeserialize(muxDefinition.Stream.responseSerialize(sent)), expected);
    expectSame(decodeBatch(requestSerialize(expected)), expected);
    expectSame(decodeBatch(encodeBatch(sent)), expected);
  }
});

test('a large message does not depend on the room of the buffer that is used again', () => {
  for (const size of [255 * 1024, 256 * 1024, 2 * 1024 * 1024]) {
    const sent = { frames: [{ id: 1, payload: [content(size)] }] };
    expectSame(decodeBatch(muxDefinition.Stream.responseSerialize(sent)), received(sent));
  }
});

test('a message that is sent goes on being what it was while others are written', () => {
  const sent = Array.from({ length: 20 }, batch);
  const encoded = sent.map((one) => muxDefinition.Stream.requestSerialize(one));
  expectSame(
    encoded.map((one) => decodeBatch(one)),
    sent.map(received),
  );
});

test('of a number that is not whole, the whole milliseconds arrive', () => {
  const sent = { ...call(), id: 5, request: Buffer.from('abc') };
  for (const timeoutMs of [0.5, 127.5, 16_383.9, 20_000.25])
    expectSame(responseDeserialize(encodeBatch({ calls: [{ ...sent, timeoutMs }] })).calls, [
      { ...sent, timeoutMs: Math.floor(timeoutMs) },
    ]);
});

test('payloads are views of what came', () => {
  const came = requestSerialize({ frames: [{ id: 1, payload: Buffer.from('payload') }] });
  const [frame] = decodeBatch(came).frames;
  expect(frame!.payload.buffer).toBe(came.buffer);
});

test('fields of a later release are passed over', () => {
  const later = [
    0x78,
    0xff,
    0xff,
    0xff,
    0xff,
    0xff,
    0xff,
    0xff,
    0xff,
    0xff,
    0x01, // field 15: the largest number of 64 bits
    0x92,
    0x06,
    0x02,
    0x61,
    0x62, // field 98: two bytes
    0x99,
    0x06,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8, // field 99: eight bytes of fixed length
    0xa5,
    0x06,
    1,
    2,
    3,
    4, // field 100: four
  ];
  const known = { calls: [], cancelled: [7], frames: [], goingAway: true };
  expect(decodeBatch(Buffer.concat([Buffer.from(later), requestSerialize(known), Buffer.from(later)]))).toEqual(known);
  const laterPiece = Buffer.from([0x1a, later.length + 2, 0x08, 0x05, ...later]);
  expect(decodeBatch(laterPiece).frames).toEqual([{ id: 5, payload: Buffer.alloc(0), more: false, failure: null }]);
  // Numbers that do not come packed, as some encoders write them.
  expect(decodeBatch(Buffer.from([0x10, 0x05, 0x10, 0x80, 0x01])).cancelled).toEqual([5, 128]);
});

test('a message that is cut off is an error, or the beginning of what was sent', () => {
  const sent = { calls: [{ ...call(), id: 3, method: 'm', request: Buffer.from('abc') }], cancelled: [1, 300] };
  const whole = encodeBatch(sent);
  const callsEnd = encodeBatch({ calls: sent.calls }).length;
  for (let length = 1; length < whole.length; length++) {
    if (length === callsEnd) expect(decodeBatch(whole.subarray(0, length)).calls).toEqual(sent.calls);
    else expect(() => decodeBatch(whole.subarray(0, length))).toThrow(RangeError);
  }
});

test.each([
  ['a message longer than the one around it', [0x1a, 0x02, 0x12, 0x05, 0x61, 0x61, 0x61, 0x61, 0x61]],
  ['a number without an end', [0x20, ...Array<number>(11).fill(0xff)]],
  ['a wire type that does not exist', [0x7f]],
])('%s is refused', (_, bytes) => {
  expect(() => decodeBatch(Buffer.from(bytes))).toThrow(RangeError);
});

type AnyMethod = Parameters<typeof partsSerializer>[0];
const { ListDocuments, Store } = dataDefinition as unknown as Record<'ListDocuments' | 'Store', AnyMethod>;

test('an answer in parts is the message that protobufjs writes, and a page is not copied for it', () => {
  for (const json of [Buffer.alloc(0), Buffer.from('{}'), content(37_000), content(300_000)]) {
    const parts = partsSerializer(ListDocuments)({ json });
    expectSame(Buffer.concat(parts), ListDocuments.responseSerialize({ json }));
    expect(parts[1]).toBe(json);
  }
  const stored = { ticketId: 'ticket', resultsJson: Buffer.from('[]') };
  expectSame(Buffer.concat(partsSerializer(Store)(stored)), Store.responseSerialize(stored));
});

test('an answer is what protobufjs reads, and a page is a view of what came', () => {
  const read = answerDeserializer(ListDocuments);
  const page = ListDocuments.responseSerialize({ json: content(37_000) });
  const other = ListDocuments.responseSerialize({ json: content(5) });
  const later = Buffer.from([0x78, 0x05]);
  // Whole, twice over, with fields of a later release, empty, and without the field.
  const messages = [[page], [page, other], [page, later], [later, page], [Buffer.from([0x0a, 0x00])], []];
  for (const came of messages.map((parts) => Buffer.concat(parts)))
    expectSame(read(came), ListDocuments.responseDeserialize(came));
  expect((read(page) as { json: Buffer }).json.buffer).toBe(page.buffer);
  const cut = [page.subarray(0, page.length - 1), page.subarray(0, 2), page.subarray(0, 1), Buffer.from([0x80])];
  for (const came of cut) expect(() => read(came)).toThrow(RangeError);
  const stored = Store.responseSerialize({ ticketId: 'ticket', resultsJson: Buffer.from('[]') });
  expectSame(answerDeserializer(Store)(stored), Store.responseDeserialize(stored));
});

test('slices of parts are slices of the whole', () => {
  const parts = [content(3), content(0), content(10), content(1)];
  const whole = Buffer.concat(parts);
  for (let start = 0; start <= whole.length; start++)
    for (let end = start; end <= whole.length; end++)
      expectSame(Buffer.concat(sliceParts(parts, start, end)), whole.subarray(start, end));
});
