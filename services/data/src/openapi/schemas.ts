import type { Projection } from '../json/project';
import type { FieldType } from '../values/field-type';
import { JsonNumber, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { toJson, type Part } from './part';

/** A field of documents, with those below it. */
interface FieldNode {
  own: Members | undefined;
  below: Map<string, FieldNode>;
  /** Whether each record has it, or one of those below it. */
  isRequired: boolean;
}

export type Members = { readonly [name: string]: Part };

/**
 * The members that each record has, unless the reader selects others: `required` would say that of every answer. An
 * object whose other members are not known does not have the keyword.
 */
const requiredKeyword = 'x-granary-required';

const newNode = (): FieldNode => ({ own: undefined, below: new Map(), isRequired: false });

/**
 * The schema of the documents of a collection, or of what a query selects of them: fields with their rules, and indexed
 * fields with the types of their indexes. A field with a default may be left out of a document that is written, and so
 * is not among those that each document has.
 */
export function documentSchema(
  rules: JsonObject,
  indexed: ReadonlyMap<string, FieldType>,
  projection: Projection = 'all',
): Part {
  const fields = new Map<string, Members>();
  const required = [...rules].flatMap(([name, rule]) =>
    rule instanceof Map && rule.get('required') === true && !hasValue(rule.get('default')) ? [name] : [],
  );
  for (const [name, rule] of rules) if (rule instanceof Map) fields.set(name, ruleSchema(rule));
  for (const [name, type] of indexed) {
    if (fields.has(name)) continue;
    fields.set(name, {
      ...fieldSchema(type),
      description: 'Indexed; its type is not checked when a document is stored',
    });
  }
  fields.set('id', { type: 'string', description: 'Unique in the collection' });
  return objectSchema(fields, rules.size === 0 ? undefined : new Set([...required, 'id']), projection);
}

/**
 * An object with fields by their paths, or what is selected of it. `required` are the paths that it always has;
 * undefined where not all of its fields are known.
 */
export function objectSchema(
  fields: ReadonlyMap<string, Members>,
  required: ReadonlySet<string> | undefined,
  projection: Projection = 'all',
): Part {
  const root = newNode();
  for (const [name, schema] of fields) add(root, name, schema, required?.has(name) === true);
  return { type: 'object', ...membersOf(selected(root, projection), required !== undefined) };
}

function add(root: FieldNode, name: string, schema: Members, isRequired: boolean): void {
  const steps = name.split('.');
  // A number may be a step into an array, which is no member of an object.
  if (steps.slice(1).some((step) => /^\d+$/.test(step))) return;
  let node = root;
  for (const step of steps) {
    let next = node.below.get(step);
    if (!next) node.below.set(step, (next = newNode()));
    node = next;
    node.isRequired ||= isRequired;
  }
  node.own = schema;
}

/** What a select keeps of a field: an object of which it keeps nothing that is always there may be missing. */
function selected(node: FieldNode, projection: Projection): FieldNode {
  if (typeof projection === 'string') return node;
  if (node.below.size === 0) return { ...node, isRequired: false };
  const parts = new Map(projection.members.entries());
  const isNamed = projection.keeps === 'named';
  const below = new Map<string, FieldNode>();
  for (const [name, field] of node.below) {
    const part = parts.get(name) ?? (isNamed ? 'none' : 'all');
    if (part !== 'none') below.set(name, selected(field, part));
  }
  // Nothing is known of a field that is selected and in no schema.
  if (isNamed) for (const name of parts.keys()) if (!node.below.has(name)) below.set(name, { ...newNode(), own: {} });
  return { own: node.own, below, isRequired: [...below.values()].some((field) => field.isRequired) };
}

function membersOf({ below }: FieldNode, areAllKnown: boolean): Members {
  const properties: JsonObject = new Map([...below].map(([name, node]) => [name, toJson(schemaOf(node, areAllKnown))]));
  if (!areAllKnown) return { properties };
  return { properties, [requiredKeyword]: [...below].flatMap(([name, node]) => (node.isRequired ? [name] : [])) };
}

function schemaOf(node: FieldNode, areAllKnown: boolean): Part {
  if (node.below.size === 0) return node.own;
  const { type = ['object', 'null'], ...keywords } = node.own ?? {};
  const isObject = Array.isArray(type) ? type.includes('object') : type === 'object';
  if (!isObject) return node.own;
  // What has a member that is always there is no null.
  const isAlwaysObject = [...node.below.values()].some((field) => field.isRequired);
  return { ...keywords, type: isAlwaysObject ? 'object' : type, ...membersOf(node, areAllKnown) };
}

const jsonTypes = {
  string: 'string',
  date: 'string',
  day: 'string',
  number: 'number',
  integer: 'integer',
  boolean: 'boolean',
} as const;

const formats: Readonly<Partial<Record<FieldType, string>>> = { date: 'date-time', day: 'date' };

/** The schema of a value of a field, as a query string can carry it. */
export function scalarSchema(type: FieldType): Members {
  if (type === 'any') return { type: ['string', 'number', 'boolean'] };
  return { type: jsonTypes[type], format: formats[type] };
}

/** The schema of a field in a document, where it may be null. */
export const fieldSchema = (type: FieldType): Members =>
  type === 'any' ? {} : { ...scalarSchema(type), type: [jsonTypes[type], 'null'] };

/** The schema of a field by its rule in a `schema_definition`. What is not required may be null. */
function ruleSchema(rule: JsonObject): Members {
  const type = rule.get('type') as string;
  const validation = rule.get('validation');
  const checks = validation instanceof Map ? validation : new Map<string, JsonValue>();
  const isRequired = rule.get('required') === true;
  const description = rule.get('description');
  const allowed = checks.get('enum');
  const pattern = checks.get('pattern');
  const jsonType = type === 'date' ? 'string' : type;
  const isDay = rule.get('format') === 'day';
  return {
    type: isRequired ? jsonType : [jsonType, 'null'],
    ...(type === 'date' && { format: isDay ? formats.day : formats.date }),
    ...boundsOf(type, checks),
    ...(typeof pattern === 'string' && isPattern(pattern) && { pattern }),
    ...(Array.isArray(allowed) && { enum: isRequired || allowed.includes(null) ? allowed : [...allowed, null] }),
    ...(typeof description === 'string' && { description }),
    ...(hasValue(rule.get('default')) && { default: rule.get('default') }),
  };
}

const hasValue = (value: JsonValue | undefined): boolean => value !== undefined && value !== null;

const boundNames: Readonly<Record<string, readonly [string, string]>> = {
  number: ['minimum', 'maximum'],
  integer: ['minimum', 'maximum'],
  string: ['minLength', 'maxLength'],
  array: ['minItems', 'maxItems'],
};

function boundsOf(type: string, checks: JsonObject): Members {
  const names = boundNames[type];
  if (!names) return {};
  const bounds: { [name: string]: Part } = {};
  for (const [index, key] of (['min', 'max'] as const).entries()) {
    const bound = checks.get(key);
    // The bounds of a length are whole numbers in JSON Schema.
    if (bound instanceof JsonNumber && (type === 'number' || type === 'integer' || /^\d+$/.test(bound.text)))
      bounds[names[index]!] = bound;
  }
  return bounds;
}

/** Whether RE2 syntax means the same in JSON Schema, as far as the syntax shows it. */
function isPattern(text: string): boolean {
  if (/\(\?[^:]|\\[AzQECpP]|\[\[:/.test(text)) return false;
  try {
    new RegExp(text, 'u');
    return true;
  } catch {
    return false;
  }
}
