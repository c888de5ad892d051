import { JsonNumber, readJson, toText, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { nearestName, suggestion } from '@granary/shared/near-names';
import { shortened } from '@granary/shared/shortened';
import { linesIn } from './json-lines';

/** Documents by which columns are chosen, and columns that are chosen so, at most. */
const sampledDocuments = 1_000;
export const columnsMax = 1_000;
/** Fields without a column that are named, at most. */
const omittedMax = 100;
/** Columns that a hint is given for, at most, and characters of names in headers. */
const hintsMax = 8;
const nameLengthMax = 80;
/** Levels of a document, of records with joins around it, and of an object that says its version. */
const depthMax = 128;

export const readDocument = (line: Buffer): JsonObject => readJson(line, { maxDepth: depthMax }) as JsonObject;

/** A column, and those of the fields inside of it. */
interface ColumnNode {
  /** Undefined: no column of its own. */
  index: number | undefined;
  readonly members: Map<string, ColumnNode>;
}

/** The columns of a table of documents, each a field by its dotted path. */
export class Columns {
  private readonly root: ColumnNode = { index: undefined, members: new Map() };
  private readonly omitted = new Set<string>();
  private readonly withValue = new Set<number>();
  private documents = 0;

  constructor(readonly names: readonly string[]) {
    for (const [index, name] of names.entries()) {
      let node = this.root;
      for (const step of name.split('.')) {
        let member = node.members.get(step);
        if (!member) node.members.set(step, (member = { index: undefined, members: new Map() }));
        node = member;
      }
      node.index = index;
    }
  }

  /** The values of a document in the columns; undefined where it has none or for objects whose fields have columns. */
  valuesOf(document: JsonObject): Array<JsonValue | undefined> {
    const values = new Array<JsonValue | undefined>(this.names.length).fill(undefined);
    this.fill(values, this.root, document, '');
    this.documents += 1;
    return values;
  }

  /** Fields that had no column so far, in the order in which they came; the last one is `…` where there are more. */
  get omittedFields(): string[] {
    return [...this.omitted];
  }

  /** A sentence for each column that nothing is known of, which may be misspelt; `fields` are those of the schema. */
  hints(fields: readonly string[]): string[] {
    if (this.documents === 0) return [];
    const knownNames = [...fields, ...this.names.filter((_, index) => this.withValue.has(index)), ...this.omitted];
    return this.names
      .filter((name, index) => !this.withValue.has(index) && !fields.includes(name))
      .slice(0, hintsMax)
      .map((name) => {
        const field = shortened(name, nameLengthMax);
        const nearName = nearestName(name, knownNames);
        const near = suggestion(nearName === undefined ? undefined : shortened(nearName, nameLengthMax));
        return `${field} is in none of the schema and the first ${this.documents} documents${near}`;
      });
  }

  private fill(values: Array<JsonValue | undefined>, node: ColumnNode, object: JsonObject, path: string): void {
    for (const [key, value] of object) {
      const member = node.members.get(key);
      if (!member) this.omit(path + key, value);
      else if (value instanceof Map && member.members.size > 0) this.fill(values, member, value, `${path}${key}.`);
      else if (member.index === undefined) this.omit(path + key, value);
      else {
        values[member.index] = value;
        this.withValue.add(member.index);
      }
    }
  }

  /** A null is where a field could be that has a column. */
  private omit(field: string, value: JsonValue): void {
    if (value === null || this.omitted.size > omittedMax) return;
    this.omitted.add(this.omitted.size === omittedMax ? '…' : shortened(field, nameLengthMax));
  }
}

/** The columns of the fields that a schema names, of those of objects only where it names none of their own. */
export function schemaColumns(fields: readonly string[]): string[] {
  const parents = new Set(fields.flatMap((field) => parentsOf(field)));
  return fields.filter((field) => !parents.has(field));
}

function parentsOf(field: string): string[] {
  const steps = field.split('.');
  return steps.slice(1).map((_, index) => steps.slice(0, index + 1).join('.'));
}

/** The columns of the fields that the first documents have, in the order in which they come. */
export function sampledColumns(lines: Buffer): string[] {
  const names = new Set<string>();
  let documents = 0;
  for (const line of linesIn(lines)) {
    addFields(names, readDocument(line), '');
    if ((documents += 1) >= sampledDocuments || names.size >= columnsMax) break;
  }
  return [...names].slice(0, columnsMax);
}

/** A field whose name has a dot has no path of its own. */
function addFields(names: Set<string>, object: JsonObject, path: string): void {
  for (const [key, value] of object) {
    if (key === '' || key.includes('.')) continue;
    if (value instanceof Map && value.size > 0) addFields(names, value, `${path}${key}.`);
    else names.add(path + key);
  }
}

/** The text of a value in a cell; undefined for none. Numbers keep the text with which they were stored. */
export function cellText(value: JsonValue | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'string') return value;
  return value instanceof JsonNumber ? value.text : toText(value);
}
