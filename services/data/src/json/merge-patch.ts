import { ByteWriter } from '@granary/shared/byte-writer';
import { CLOSE_BRACE, COLON, COMMA, LOWER_N, OPEN_BRACE, decodeString, sameBytes } from '@granary/shared/json/bytes';
import { JsonReader, type JsonType } from '@granary/shared/json/reader';

/** Levels of a target and of a patch; documents and bodies have fewer. */
const depthMax = 128;
/** Up to so many members of a patch are compared one by one; for more a Map is cheaper. */
const comparedMembersMax = 32;

/**
 * Applies a JSON merge patch (RFC 7396) to the text of an object, and returns the new text. Members that the patch does
 * not name keep their bytes and their order, so numbers stay as they were written; new members follow in the order of
 * the patch, without its members that are null. Both texts must be one JSON object each. Throws JsonError where one of
 * them is not valid JSON.
 */
export const applyMergePatch = (target: Buffer, patch: Buffer): Buffer => parseMergePatch(patch).applyTo(target);

/** Reads a text that is one object. Throws JsonError. */
export function parseMergePatch(text: Buffer): MergePatch {
  const reader = readerOf(text);
  const patch = readObject(reader);
  reader.end();
  return patch;
}

const readerOf = (bytes: Buffer): JsonReader => new JsonReader(bytes, { maxDepth: depthMax });

function readObject(reader: JsonReader): MergePatch {
  const patch = new MergePatch(reader.bytes);
  reader.enterObject();
  while (reader.nextMember()) patch.readMember(reader, reader.peekType());
  return patch;
}

/**
 * The initial size in bytes of the buffer for merged texts, and the size above which it is not kept for the next text.
 */
const [scratchBytes, scratchBytesMax] = [4 * 1024, 64 * 1024];
let scratch = new ByteWriter(scratchBytes);

/** The numbers of a member, one after the other: its hash, whether its key has escapes, and extents in the bytes. */
const [hashAt, escapedAt, keyStartAt, keyEndAt, valueStartAt, valueEndAt, stride] = [0, 1, 2, 3, 4, 5, 6];

/** An object of a patch: its members are extents in the bytes that it was read from, and nothing of it is decoded. */
export class MergePatch {
  private readonly numbers: number[] = [];
  /** The objects among the values, by the offset of their member in `numbers`. */
  private objects: Map<number, MergePatch> | undefined;
  /** Offsets of members by their decoded keys, where they are many. */
  private byKey: Map<string, number> | undefined;

  constructor(private readonly bytes: Buffer) {}

  /** Reads the value of the member whose key the reader has just read, of the same bytes. */
  readMember(reader: JsonReader, type: JsonType): void {
    const { numbers } = this;
    const offset = numbers.length;
    const { keyHash, keyEscaped, keyStart, keyEnd, position } = reader;
    numbers.push(keyHash, keyEscaped ? 1 : 0, keyStart, keyEnd, position, 0);
    if (type === 'object') (this.objects ??= new Map()).set(offset, readObject(reader));
    else reader.skipValue();
    numbers[offset + valueEndAt] = reader.position;
  }

  /** The text of an object as this patch changes it. Throws JsonError where it is not valid JSON. */
  applyTo(target: Buffer): Buffer {
    const writer = scratch.length > scratchBytesMax ? new ByteWriter(scratchBytes) : scratch;
    writer.rewind(0);
    this.merge(readerOf(target), writer);
    // A copy of its own size, mostly from Node's pool.
    const merged = Buffer.from(writer.take());
    scratch = writer;
    return merged;
  }

  /** Whether this patch changes the value at a path of keys, something in it or what it is in. */
  names([key, ...rest]: readonly string[]): boolean {
    const offset = key === undefined ? undefined : this.indexed().get(key);
    if (offset === undefined) return false;
    const nested = this.objects?.get(offset);
    return rest.length === 0 || nested === undefined || nested.names(rest);
  }

  /** Reads the next value of the target, an object, and writes it as this patch changes it. */
  private merge(reader: JsonReader, writer: ByteWriter): void {
    const { bytes } = reader;
    const object = new ObjectWriter(writer);
    const merged = new Set<number>();
    // Members side by side that keep their bytes are copied together.
    let [keptStart, keptEnd] = [0, 0];
    const writeKept = () => {
      if (keptEnd > keptStart) object.member(bytes, keptStart, keptEnd);
      keptStart = keptEnd = 0;
    };
    let expected = 0;
    reader.enterObject();
    while (reader.nextMember()) {
      const start = reader.keyStart - 1;
      const offset = this.find(reader, expected);
      if (offset < 0) {
        reader.skipValue();
        if (keptEnd === 0 || start !== keptEnd + 1) {
          writeKept();
          keptStart = start;
        }
        keptEnd = reader.position;
        continue;
      }
      writeKept();
      expected = offset + stride;
      merged.add(offset);
      this.mergeMember(reader, offset, start, object, writer);
    }
    writeKept();
    this.addMembers(object, writer, merged);
    object.end();
  }

  /** Writes a member of the target that this patch names; the reader is before its value. */
  private mergeMember(
    reader: JsonReader,
    offset: number,
    start: number,
    object: ObjectWriter,
    writer: ByteWriter,
  ): void {
    const type = reader.peekType();
    const valueStart = reader.position;
    const nested = this.objects?.get(offset);
    if (nested && type === 'object') {
      object.member(reader.bytes, start, valueStart);
      nested.merge(reader, writer);
      return;
    }
    reader.skipValue();
    if (this.isNull(offset)) return;
    object.member(reader.bytes, start, valueStart);
    this.writeValue(offset, writer);
  }

  /**
   * Writes the members that are not null and not in `except`, as they stand where a target has nothing to merge with.
   */
  private addMembers(object: ObjectWriter, writer: ByteWriter, except?: ReadonlySet<number>): void {
    const { bytes, numbers } = this;
    for (let offset = 0; offset < numbers.length; offset += stride) {
      if (this.isNull(offset) || except?.has(offset)) continue;
      object.member(bytes, numbers[offset + keyStartAt]! - 1, numbers[offset + keyEndAt]! + 1);
      writer.byte(COLON);
      this.writeValue(offset, writer);
    }
  }

  /** Null members of an object are left out. */
  private writeValue(offset: number, writer: ByteWriter): void {
    const nested = this.objects?.get(offset);
    if (!nested) {
      writer.raw(this.bytes, this.numbers[offset + valueStartAt], this.numbers[offset + valueEndAt]);
      return;
    }
    const object = new ObjectWriter(writer);
    nested.addMembers(object, writer);
    object.end();
  }

  private isNull(at: number): boolean {
    return this.bytes[this.numbers[at + valueStartAt]!] === LOWER_N;
  }

  /** The member with the current key of the reader, -1 where there is none. It is probably the one at `expected`. */
  private find(reader: JsonReader, expected: number): number {
    const { numbers } = this;
    if (expected < numbers.length && this.hasKey(expected, reader)) return expected;
    if (numbers.length > comparedMembersMax * stride) return this.indexed().get(reader.key()) ?? -1;
    for (let offset = 0; offset < numbers.length; offset += stride) if (this.hasKey(offset, reader)) return offset;
    return -1;
  }

  private hasKey(offset: number, reader: JsonReader): boolean {
    const { bytes, numbers } = this;
    if (numbers[offset + hashAt] !== reader.keyHash) return false;
    const start = numbers[offset + keyStartAt]!;
    const end = numbers[offset + keyEndAt]!;
    const isEscaped = numbers[offset + escapedAt] === 1;
    if (isEscaped || reader.keyEscaped) return decodeString(bytes, start, end, isEscaped) === reader.key();
    const size = end - start;
    return size === reader.keyEnd - reader.keyStart && sameBytes(bytes, start, reader.bytes, reader.keyStart, size);
  }

  private indexed(): ReadonlyMap<string, number> {
    if (this.byKey) return this.byKey;
    const { bytes, numbers } = this;
    this.byKey = new Map();
    for (let offset = 0; offset < numbers.length; offset += stride) {
      const key = decodeString(
        bytes,
        numbers[offset + keyStartAt]!,
        numbers[offset + keyEndAt]!,
        numbers[offset + escapedAt] === 1,
      );
      this.byKey.set(key, offset);
    }
    return this.byKey;
  }
}

class ObjectWriter {
  private isEmpty = true;

  constructor(private readonly writer: ByteWriter) {
    writer.byte(OPEN_BRACE);
  }

  /** Writes a member, or its beginning, or several members side by side. */
  member(bytes: Buffer, start: number, end: number): void {
    if (!this.isEmpty) this.writer.byte(COMMA);
    this.isEmpty = false;
    this.writer.raw(bytes, start, end);
  }

  end(): void {
    this.writer.byte(CLOSE_BRACE);
  }
}
