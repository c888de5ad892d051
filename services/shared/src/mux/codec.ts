import type { Batch } from '../gen/granary/mux/v1/Batch';
import type { Call } from '../gen/granary/mux/v1/Call';
import type { Frame } from '../gen/granary/mux/v1/Frame';
import type { Failure } from '../rpc/status';

/**
 * Encodes and decodes the messages of protos/mux/v1/mux.proto. The wire format is that of protobufjs (the tests decode
 * each with the other), but a payload is copied once when it is sent, and not at all when it is received.
 */

/** A message to be sent; what is left out is empty. */
export interface OutgoingBatch {
  calls?: readonly Call[];
  cancelled?: readonly number[];
  frames?: readonly OutgoingFrame[];
  goingAway?: boolean;
}

export interface OutgoingFrame {
  id: number;
  /** The parts of the payload, one after the other. */
  payload?: readonly Buffer[];
  more?: boolean;
  failure?: Failure;
}

/**
 * The wire types of protobuf that are used: the low three bits of a tag; the other bits are the number of the field.
 */
const varint = 0;
const delimited = 2;

const tags = {
  batch: { calls: tag(1), cancelled: tag(2), oneCancelled: tag(2, varint), frames: tag(3), goingAway: tag(4, varint) },
  call: {
    id: tag(1, varint),
    method: tag(2),
    timeoutMs: tag(3, varint),
    requestId: tag(4),
    request: tag(5),
    trace: tag(6),
  },
  frame: { id: tag(1, varint), payload: tag(2), more: tag(3, varint), failure: tag(4) },
  failure: { code: tag(1, varint), message: tag(2), reason: tag(3), details: tag(4) },
};

function tag(field: number, wireType = delimited): number {
  return (field << 3) | wireType;
}

const nothing = Buffer.alloc(0);

type Allocate = (size: number) => Buffer;

const allocateExactly: Allocate = (size) => Buffer.allocUnsafe(size);

/** A batch, in the buffer that `allocate` gives for its size, which may be longer: the view ends with the batch. */
export function encodeBatch(batch: OutgoingBatch, allocate = allocateExactly): Buffer {
  const { calls = [], cancelled = [], frames = [], goingAway = false } = batch;
  const callSizes = calls.map(callSize);
  const frameSizes = frames.map(frameSize);
  const cancelledSize = cancelled.reduce((sum, id) => sum + varintSize(id), 0);
  let size = (cancelled.length > 0 ? delimitedSize(cancelledSize) : 0) + (goingAway ? 2 : 0);
  for (const bytes of callSizes) size += delimitedSize(bytes);
  for (const bytes of frameSizes) size += delimitedSize(bytes);

  const target = allocate(size);
  let at = 0;
  for (const [index, call] of calls.entries()) {
    at = writeHead(target, at, tags.batch.calls, callSizes[index]!);
    at = writeCall(target, at, call);
  }
  if (cancelled.length > 0) {
    at = writeHead(target, at, tags.batch.cancelled, cancelledSize);
    for (const id of cancelled) at = writeVarint(target, at, id);
  }
  for (const [index, frame] of frames.entries()) {
    at = writeHead(target, at, tags.batch.frames, frameSizes[index]!);
    at = writeFrame(target, at, frame);
  }
  if (goingAway) at = writeNumber(target, at, tags.batch.goingAway, 1);
  return target.subarray(0, at);
}

function callSize({ id, method, timeoutMs, requestId, request, trace }: Call): number {
  const size =
    numberSize(id) + textSize(method) + numberSize(timeoutMs) + textSize(requestId) + bytesSize(request.length);
  return trace === undefined ? size : size + textSize(trace);
}

function writeCall(target: Buffer, start: number, { id, method, timeoutMs, requestId, request, trace }: Call): number {
  let at = writeNumber(target, start, tags.call.id, id);
  at = writeText(target, at, tags.call.method, method);
  at = writeNumber(target, at, tags.call.timeoutMs, timeoutMs);
  at = writeText(target, at, tags.call.requestId, requestId);
  at = writeBytes(target, at, tags.call.request, request);
  return trace === undefined ? at : writeText(target, at, tags.call.trace, trace);
}

function frameSize({ id, payload = [], more = false, failure }: OutgoingFrame): number {
  const size = numberSize(id) + bytesSize(partsLength(payload)) + (more ? 2 : 0);
  return failure ? size + delimitedSize(failureSize(failure)) : size;
}

function writeFrame(target: Buffer, start: number, { id, payload = [], more = false, failure }: OutgoingFrame): number {
  let at = writeNumber(target, start, tags.frame.id, id);
  const length = partsLength(payload);
  if (length > 0) {
    at = writeHead(target, at, tags.frame.payload, length);
    for (const part of payload) at += part.copy(target, at);
  }
  if (more) at = writeNumber(target, at, tags.frame.more, 1);
  if (!failure) return at;
  at = writeHead(target, at, tags.frame.failure, failureSize(failure));
  return writeFailure(target, at, failure);
}

function failureSize({ code, message, reason, details }: Failure): number {
  return numberSize(code) + textSize(message) + textSize(reason) + bytesSize(details.length);
}

function writeFailure(target: Buffer, start: number, { code, message, reason, details }: Failure): number {
  let at = writeNumber(target, start, tags.failure.code, code);
  at = writeText(target, at, tags.failure.message, message);
  at = writeText(target, at, tags.failure.reason, reason);
  return writeBytes(target, at, tags.failure.details, details);
}

/** The bytes of `field` as a view, when the message in `bytes` is this field once and nothing else. */
export function readOnlyBytes(field: number, bytes: Buffer): Buffer | undefined {
  const cursor: Cursor = { bytes, at: 0, end: bytes.length };
  if (bytes.length === 0 || readVarint(cursor) !== tag(field) || cursor.at === bytes.length) return undefined;
  const length = readVarint(cursor);
  return cursor.at + length === bytes.length ? bytes.subarray(cursor.at) : undefined;
}

/** The tag and length of a field of bytes. */
export function bytesHead(field: number, length: number): Buffer {
  const head = Buffer.allocUnsafe(varintSize(tag(field)) + varintSize(length));
  writeVarint(head, writeVarint(head, 0, tag(field)), length);
  return head;
}

export function partsLength(parts: readonly Buffer[]): number {
  let length = 0;
  for (const part of parts) length += part.length;
  return length;
}

// Sizes and writers of single fields. All tags are one byte; what has its default value is left out.

function varintSize(value: number): number {
  return value < 0x80 ? 1 : value < 0x4000 ? 2 : value < 0x20_0000 ? 3 : value < 0x1000_0000 ? 4 : 5;
}

function delimitedSize(length: number): number {
  return 1 + varintSize(length) + length;
}

function bytesSize(length: number): number {
  return length > 0 ? delimitedSize(length) : 0;
}

function textSize(text: string): number {
  return bytesSize(Buffer.byteLength(text));
}

function numberSize(value: number): number {
  return value > 0 ? 1 + varintSize(value) : 0;
}

/** `value` is from 0 to 2^32 - 1; a fraction is cut off. Returns the offset after it, as do all writers here. */
function writeVarint(target: Buffer, start: number, value: number): number {
  let at = start;
  let rest = value >>> 0;
  while (rest > 0x7f) {
    target[at++] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
  }
  target[at++] = rest;
  return at;
}

function writeHead(target: Buffer, at: number, fieldTag: number, length: number): number {
  target[at] = fieldTag;
  return writeVarint(target, at + 1, length);
}

function writeNumber(target: Buffer, at: number, fieldTag: number, value: number): number {
  return value > 0 ? writeHead(target, at, fieldTag, value) : at;
}

function writeText(target: Buffer, at: number, fieldTag: number, text: string): number {
  if (text === '') return at;
  const start = writeHead(target, at, fieldTag, Buffer.byteLength(text));
  return start + target.write(text, start);
}

function writeBytes(target: Buffer, at: number, fieldTag: number, bytes: Buffer): number {
  if (bytes.length === 0) return at;
  const start = writeHead(target, at, fieldTag, bytes.length);
  return start + bytes.copy(target, start);
}

/** The position of the decoder; `end` is the end of the innermost message, and nothing is read beyond it. */
interface Cursor {
  bytes: Buffer;
  at: number;
  end: number;
}

/**
 * The batch in `bytes`, which must not be written to again: requests and payloads are views of it, and keep it in
 * memory. Unknown fields, of a later release, are skipped. Throws when it is not a protobuf message.
 */
export function decodeBatch(bytes: Buffer): Batch {
  const batch: Batch = { calls: [], cancelled: [], frames: [], goingAway: false };
  const cursor: Cursor = { bytes, at: 0, end: bytes.length };
  while (cursor.at < cursor.end) {
    const fieldTag = readVarint(cursor);
    if (fieldTag === tags.batch.calls) batch.calls.push(readMessage(cursor, readCall));
    else if (fieldTag === tags.batch.frames) batch.frames.push(readMessage(cursor, readFrame));
    else if (fieldTag === tags.batch.cancelled) readMessage(cursor, () => readVarints(cursor, batch.cancelled));
    else if (fieldTag === tags.batch.oneCancelled) batch.cancelled.push(readVarint(cursor));
    else if (fieldTag === tags.batch.goingAway) batch.goingAway = readVarint(cursor) !== 0;
    else skip(cursor, fieldTag);
  }
  return batch;
}

function readCall(cursor: Cursor): Call {
  const call: Call = { id: 0, method: '', timeoutMs: 0, requestId: '', request: nothing };
  while (cursor.at < cursor.end) {
    const fieldTag = readVarint(cursor);
    if (fieldTag === tags.call.id) call.id = readVarint(cursor);
    else if (fieldTag === tags.call.method) call.method = readText(cursor);
    else if (fieldTag === tags.call.timeoutMs) call.timeoutMs = readVarint(cursor);
    else if (fieldTag === tags.call.requestId) call.requestId = readText(cursor);
    else if (fieldTag === tags.call.request) call.request = readBytes(cursor);
    else if (fieldTag === tags.call.trace) call.trace = readText(cursor);
    else skip(cursor, fieldTag);
  }
  return call;
}

function readFrame(cursor: Cursor): Frame {
  const frame: Frame = { id: 0, payload: nothing, more: false, failure: null };
  while (cursor.at < cursor.end) {
    const fieldTag = readVarint(cursor);
    if (fieldTag === tags.frame.id) frame.id = readVarint(cursor);
    else if (fieldTag === tags.frame.payload) frame.payload = readBytes(cursor);
    else if (fieldTag === tags.frame.more) frame.more = readVarint(cursor) !== 0;
    else if (fieldTag === tags.frame.failure) frame.failure = readMessage(cursor, readFailure);
    else skip(cursor, fieldTag);
  }
  return frame;
}

function readFailure(cursor: Cursor): Failure {
  const failure: Failure = { code: 0, message: '', reason: '', details: nothing };
  while (cursor.at < cursor.end) {
    const fieldTag = readVarint(cursor);
    if (fieldTag === tags.failure.code) failure.code = readVarint(cursor);
    else if (fieldTag === tags.failure.message) failure.message = readText(cursor);
    else if (fieldTag === tags.failure.reason) failure.reason = readText(cursor);
    else if (fieldTag === tags.failure.details) failure.details = readBytes(cursor);
    else skip(cursor, fieldTag);
  }
  return failure;
}

function readVarints(cursor: Cursor, values: number[]): void {
  while (cursor.at < cursor.end) values.push(readVarint(cursor));
}

function readMessage<T>(cursor: Cursor, read: (cursor: Cursor) => T): T {
  const outerEnd = cursor.end;
  cursor.end = readEnd(cursor);
  const message = read(cursor);
  cursor.end = outerEnd;
  return message;
}

function readBytes(cursor: Cursor): Buffer {
  const end = readEnd(cursor);
  const view = cursor.bytes.subarray(cursor.at, end);
  cursor.at = end;
  return view;
}

function readText(cursor: Cursor): string {
  const end = readEnd(cursor);
  const text = cursor.bytes.toString('utf8', cursor.at, end);
  cursor.at = end;
  return text;
}

/** Reads the length of what follows. */
function readEnd(cursor: Cursor): number {
  const length = readVarint(cursor);
  return within(cursor, cursor.at + length);
}

function within({ end }: Cursor, position: number): number {
  if (position > end) throw new RangeError('The message is cut off');
  return position;
}

/** The lower 32 bits of a number; one of 64 has up to ten bytes. */
function readVarint(cursor: Cursor): number {
  let value = 0;
  for (let shift = 0; shift < 70; shift += 7) {
    within(cursor, cursor.at + 1);
    const byte = cursor.bytes[cursor.at++]!;
    if (shift < 32) value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value >>> 0;
  }
  throw new RangeError('A number is too long');
}

function skip(cursor: Cursor, fieldTag: number): void {
  const wireType = fieldTag & 7;
  if (wireType === varint) readVarint(cursor);
  else if (wireType === delimited) cursor.at = readEnd(cursor);
  else if (wireType === 1) cursor.at = within(cursor, cursor.at + 8);
  else if (wireType === 5) cursor.at = within(cursor, cursor.at + 4);
  else throw new RangeError('There is no such type of field');
}
