import { JsonReader } from './reader';

/** Levels of a target and of a patch; documents and bodies have fewer. */
const depthMax = 128;

/**
 * Applies a JSON merge patch (RFC 7396) to the text of an object, and returns the new text. Members that the patch does
 * not name keep their bytes and their order, so numbers stay as they were written; new members follow in the order of
 * the patch, without its members that are null. Both texts must be one JSON object each. Throws JsonError where one of
 * them is not valid JSON.
 */
export function applyMergePatch(target: Buffer, patch: Buffer): Buffer {
  const parts: Buffer[] = [];
  mergeObject(readerOf(target), readPatch(patch), parts);
  return Buffer.concat(parts);
}

/** A value of the patch: its bytes, and its members where it is an object. */
interface PatchValue {
  readonly bytes: Buffer;
  readonly isNull: boolean;
  readonly members: PatchMembers | undefined;
}

/** The members of an object of a patch by their decoded keys, each with its key as written. */
type PatchMembers = ReadonlyMap<string, { readonly key: Buffer; readonly value: PatchValue }>;

const openBrace = Buffer.from('{');
const closeBrace = Buffer.from('}');
const comma = Buffer.from(',');
const colon = Buffer.from(':');

const readerOf = (bytes: Buffer): JsonReader => new JsonReader(bytes, { maxDepth: depthMax });

function readPatch(patch: Buffer): PatchMembers {
  const reader = readerOf(patch);
  const members = readMembers(reader);
  reader.end();
  return members;
}

/** Reads the next value, an object, and the objects in it. */
function readMembers(reader: JsonReader): PatchMembers {
  const members = new Map<string, { key: Buffer; value: PatchValue }>();
  reader.enterObject();
  while (reader.nextMember()) {
    const key = reader.bytes.subarray(reader.keyStart - 1, reader.keyEnd + 1);
    members.set(reader.key(), { key, value: readPatchValue(reader) });
  }
  return members;
}

function readPatchValue(reader: JsonReader): PatchValue {
  const type = reader.peekType();
  const start = reader.position;
  const members = type === 'object' ? readMembers(reader) : undefined;
  if (!members) reader.skipValue();
  return { bytes: reader.bytes.subarray(start, reader.position), isNull: type === 'null', members };
}

/** Reads the next value of the target, an object, and writes it as the patch changes it. */
function mergeObject(reader: JsonReader, patch: PatchMembers, parts: Buffer[]): void {
  const { bytes } = reader;
  const added = new Map(patch);
  const writer = new ObjectWriter(parts);
  reader.enterObject();
  while (reader.nextMember()) {
    const start = reader.keyStart - 1;
    const name = reader.key();
    const change = added.get(name)?.value;
    added.delete(name);
    const type = reader.peekType();
    const valueStart = reader.position;
    if (change?.members && type === 'object') {
      writer.member(bytes.subarray(start, valueStart));
      mergeObject(reader, change.members, parts);
      continue;
    }
    reader.skipValue();
    if (!change) {
      writer.member(bytes.subarray(start, reader.position));
    } else if (!change.isNull) {
      writer.member(bytes.subarray(start, valueStart));
      writeWithoutNulls(change, parts);
    }
  }
  addMembers(added, writer, parts);
  writer.end();
}

/** A value of a patch where the target has none to merge with: null members of its objects are left out. */
function writeWithoutNulls({ bytes, members }: PatchValue, parts: Buffer[]): void {
  if (!members) {
    parts.push(bytes);
    return;
  }
  const writer = new ObjectWriter(parts);
  addMembers(members, writer, parts);
  writer.end();
}

function addMembers(members: PatchMembers, writer: ObjectWriter, parts: Buffer[]): void {
  for (const { key, value } of members.values()) {
    if (value.isNull) continue;
    writer.member(key);
    parts.push(colon);
    writeWithoutNulls(value, parts);
  }
}

class ObjectWriter {
  private isEmpty = true;

  constructor(private readonly parts: Buffer[]) {
    parts.push(openBrace);
  }

  /** Writes a member, or its beginning. */
  member(bytes: Buffer): void {
    if (!this.isEmpty) this.parts.push(comma);
    this.isEmpty = false;
    this.parts.push(bytes);
  }

  end(): void {
    this.parts.push(closeBrace);
  }
}
