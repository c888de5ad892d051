import { ByteWriter } from '@granary/shared/byte-writer';
import { arrayStep } from './document';
import { JsonError } from '@granary/shared/json/error';
import { KeyTable } from './key-table';
import { computedDigitsMax } from '@granary/shared/json/number-range';
import { JsonReader } from '@granary/shared/json/reader';
import type { JsonValue } from '@granary/shared/json/value';

/** Steps of a path in a select. */
export const selectDepthMax = 64;
/** Records nest deeper than documents where joins put them inside each other. */
const recordDepthMax = 512;

/** Which parts of a record are kept; made by compileProjection. */
export type Projection = 'all' | 'none' | LevelProjection;

interface LevelProjection {
  /** Whether only the named fields are kept, or all but those. */
  readonly keeps: 'named' | 'others';
  readonly members: KeyTable<Projection>;
  readonly elements: ReadonlyMap<number, Projection>;
}

/** The fields of a select while they are collected: dotted paths and nested objects mean the same tree. */
interface SelectNode {
  keep: boolean | undefined;
  readonly path: string;
  readonly fields: Map<string, SelectNode>;
}

/**
 * Compiles a `select`: null, `{}`, an empty list and an empty string keep everything; `{"f": true}` keeps only f,
 * `{"f": false}` all but f, nested objects do the same for sub-fields (`{}` there keeps the field whole); an array or
 * a comma-separated string names the paths to keep. A level that names nothing itself takes its kind from below.
 * Throws JsonError INVALID_SELECT, its `path` the field.
 */
export function compileProjection(select: JsonValue): Projection {
  const root: SelectNode = { keep: undefined, path: '', fields: new Map() };
  if (select === null) return 'all';
  if (typeof select === 'string') {
    for (const path of select.trim() === '' ? [] : select.split(',')) addPath(root, path.trim(), true);
  } else if (Array.isArray(select)) {
    for (const path of select) {
      if (typeof path !== 'string') throw invalidSelect('', 'A list of fields must hold strings');
      addPath(root, path.trim(), true);
    }
  } else if (select instanceof Map) {
    addObject(root, select);
  } else {
    throw invalidSelect('', 'Must be an object, a list of fields, or fields separated by commas');
  }
  return root.fields.size === 0 ? 'all' : compileNode(root);
}

function addObject(parent: SelectNode, select: ReadonlyMap<string, JsonValue>): void {
  for (const [path, value] of select) {
    if (typeof value === 'boolean') addPath(parent, path, value);
    else if (!(value instanceof Map)) throw invalidSelect(join(parent.path, path), 'Must be true, false or an object');
    else if (value.size === 0) addPath(parent, path, true);
    else addObject(nodeAt(parent, path), value);
  }
}

function addPath(parent: SelectNode, path: string, keep: boolean): void {
  const node = nodeAt(parent, path);
  if (node.keep !== undefined && node.keep !== keep) throw mixed(node);
  node.keep = keep;
}

function nodeAt(parent: SelectNode, path: string): SelectNode {
  let node = parent;
  for (const step of path.split('.')) {
    const stepPath = join(node.path, step);
    if (step === '') throw invalidSelect(stepPath, 'A step of a path must not be empty');
    if (/^-[0-9]+$/.test(step)) throw invalidSelect(stepPath, 'A step of a path must not be negative');
    let next = node.fields.get(step);
    if (next === undefined) {
      if (stepPath.split('.').length > selectDepthMax) {
        throw invalidSelect(stepPath, `A path may have at most ${selectDepthMax} steps`);
      }
      next = { keep: undefined, path: stepPath, fields: new Map() };
      node.fields.set(step, next);
    }
    node = next;
  }
  return node;
}

function compileNode(node: SelectNode): Projection {
  const fields = new Map([...node.fields].map(([step, field]) => [step, compileNode(field)]));
  const kinds = [...fields.values()];
  const { keep } = node;
  if (keep !== undefined) {
    // The field is named as a whole and in part: both must agree.
    if (kinds.some((kind) => keepsNamed(kind) !== keep)) throw mixed(node);
    return keep ? 'all' : 'none';
  }
  const hasTrue = kinds.includes('all');
  const hasFalse = kinds.includes('none');
  if (hasTrue && hasFalse) throw mixed(node);
  const undecided = !hasTrue && !hasFalse;
  if (undecided && kinds.some(keepsNamed) && !kinds.every(keepsNamed)) throw mixed(node);
  const elements = new Map<number, Projection>();
  for (const [step, field] of fields) {
    const index = arrayStep(step);
    if (index !== undefined) elements.set(index, field);
  }
  return {
    keeps: hasTrue || (undecided && kinds.every(keepsNamed)) ? 'named' : 'others',
    members: new KeyTable(fields),
    elements,
  };
}

/**
 * A projection as plain JSON: true for all, false for nothing, or whether a level keeps what is named, with its members
 * and elements.
 */
export type PlainProjection =
  boolean | { named: boolean; members: Record<string, PlainProjection>; elements: Record<string, PlainProjection> };

export function plainProjection(projection: Projection): PlainProjection {
  if (typeof projection === 'string') return projection === 'all';
  const plain = (entries: Iterable<readonly [string | number, Projection]>) =>
    Object.fromEntries([...entries].map(([step, part]) => [step, plainProjection(part)]));
  const { keeps, members, elements } = projection;
  return { named: keeps === 'named', members: plain(members.entries()), elements: plain(elements) };
}

function keepsNamed(projection: Projection): boolean {
  return projection === 'all' || (projection !== 'none' && projection.keeps === 'named');
}

function join(path: string, step: string): string {
  return path === '' ? step : `${path}.${step}`;
}

function mixed(node: SelectNode): JsonError {
  return invalidSelect(node.path, 'Included and excluded fields cannot be mixed on one level');
}

function invalidSelect(path: string, message: string): JsonError {
  return new JsonError('INVALID_SELECT', 0, message, path === '' ? undefined : path);
}

/**
 * The selected parts of a record, in its order and in its text. A missing field is omitted, and so is an object of
 * which only missing fields are selected. An element of an array that is selected by its index keeps its place, so that
 * its path leads to it here, too; those before it that are not selected are null (`tags.1` gives `{"tags":[null,…]}`).
 */
export function project(text: string, projection: Projection): string;
export function project(text: Buffer, projection: Projection): Buffer;
export function project(text: Buffer | string, projection: Projection): Buffer | string {
  if (projection === 'all') return text;
  const record = typeof text === 'string' ? Buffer.from(text) : text;
  const reader = new JsonReader(record, { maxDepth: recordDepthMax, digitsMax: computedDigitsMax });
  const output = new Output(record);
  if (!projectValue(reader, projection, output)) {
    output.rewind(0);
    output.write('{}');
  }
  reader.end();
  return typeof text === 'string' ? output.take().toString() : output.take();
}

/** Writes the selected part of the next value; returns whether there is any. */
function projectValue(reader: JsonReader, projection: Projection, output: Output): boolean {
  const type = reader.peekType();
  const isLevel = typeof projection === 'object';
  if (isLevel && type === 'object') return projectObject(reader, projection, output);
  if (isLevel && type === 'array') return projectArray(reader, projection, output);
  const start = reader.skipValue();
  if (projection === 'none' || (isLevel && projection.keeps === 'named')) return false;
  output.copy(start, reader.position);
  return true;
}

function projectObject(reader: JsonReader, level: LevelProjection, output: Output): boolean {
  const others = level.keeps === 'named' ? 'none' : 'all';
  let kept = 0;
  output.write('{');
  reader.enterObject();
  while (reader.nextMember()) {
    const field = level.members.find(reader) ?? others;
    const mark = output.length;
    if (kept > 0) output.write(',');
    output.copy(reader.keyStart - 1, reader.keyEnd + 1);
    output.write(':');
    if (projectValue(reader, field, output)) kept += 1;
    else output.rewind(mark);
  }
  output.write('}');
  return kept > 0 || level.keeps === 'others';
}

function projectArray(reader: JsonReader, level: LevelProjection, output: Output): boolean {
  const named = level.keeps === 'named';
  let written = 0;
  output.write('[');
  reader.enterArray();
  for (let index = 0; reader.nextElement(); index += 1) {
    const element = level.elements.get(index) ?? (named ? 'none' : 'all');
    if (element === 'none') {
      reader.skipValue();
      continue;
    }
    const mark = output.length;
    if (written > 0) output.write(',');
    const skipped = named ? index - written : 0;
    output.write('null,'.repeat(skipped));
    if (projectValue(reader, element, output)) written += skipped + 1;
    else output.rewind(mark);
  }
  output.write(']');
  return written > 0 || !named;
}

/** The projected text of a source. */
class Output extends ByteWriter {
  constructor(private readonly source: Buffer) {
    super(source.length + 64);
  }

  /** Appends ASCII text; for a few bytes a loop is faster than a native call. */
  write(text: string): void {
    this.reserve(text.length);
    const { bytes, size } = this;
    for (let i = 0; i < text.length; i += 1) bytes[size + i] = text.charCodeAt(i);
    this.size += text.length;
  }

  /** Appends a part of the source. */
  copy(start: number, end: number): void {
    this.raw(this.source, start, end);
  }
}
