import { RE2JS } from 're2js';
import { invalid, type FieldMessages } from '@granary/shared/errors';
import { scalarAt, type Capture } from '../json/document';
import { JsonNumber, readJson, toText, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { translateJsonErrors } from '@granary/shared/json/service-error';
import { compareDecimals, isWhole } from '../values/decimal';
import { isDay, isTimed } from '../values/instant';
import { isFieldPath, isIndexName } from './names';
import { canonicalText, valueAt } from '../values/canonical';

export const SCHEMA_VIOLATION = 'SCHEMA_VIOLATION';

const fieldTypes = ['string', 'number', 'integer', 'boolean', 'date', 'object', 'array'] as const;
export type SchemaType = (typeof fieldTypes)[number];

/** Fields of a schema, at most. */
export const schemaFieldsMax = 200;
const patternLengthMax = 200;
const enumValuesMax = 200;
/** Characters of an indexed field: the name of its index holds that of the collection too. */
const indexedFieldLengthMax = 120;
/** Defaults are written into every document that lacks them. */
const defaultsMaxBytes = 64 * 1024;
/** Characters of the allowed values that a message shows. */
const enumTextLengthMax = 500;

export interface FieldRule {
  type: SchemaType;
  /** Whether it is a date without a time (`format: "day"`). */
  isDay: boolean;
  index: boolean;
  unique: boolean;
  required: boolean;
  /** JSON text of the field's value in documents that lack it. */
  defaultText: string | undefined;
  /** Bounds of a number's value, a string's characters, an array's elements; JSON number text. */
  min: string | undefined;
  max: string | undefined;
  pattern: RE2JS | undefined;
  /** The allowed values in canonical text, and as they were written for the message. */
  enum: { allowed: ReadonlySet<string>; text: string } | undefined;
}

/** A parsed `schema_definition`: rules by field path. */
export interface Schema {
  fields: ReadonlyMap<string, FieldRule>;
}

/** The part of a schema that decides the types of fields. */
export interface FieldTypes {
  fields: ReadonlyMap<string, Pick<FieldRule, 'type' | 'isDay'>>;
}

/**
 * Reads the JSON text of a `schema_definition`. A rule that is null or an empty pattern is refused, but for one that is
 * stored, which an older release took for none. Throws VALIDATION_FAILED with a message for each path that is wrong.
 */
export function parseSchema(text: string, { isStored = false } = {}): Schema {
  const definition = readDefinition(text);
  const messages: FieldMessages = {};
  const wrong = (path: string, message: string) => (messages[path] ??= []).push(message);
  const fields = new Map<string, FieldRule>();
  const declaredFields = definition instanceof Map ? definition.get('fields') : undefined;
  if (!(definition instanceof Map)) wrong('schema_definition', 'must be an object');
  else {
    for (const key of definition.keys())
      if (key !== 'fields') wrong(`schema_definition.${key}`, 'is not a known field');
    if (declaredFields !== undefined && !(declaredFields instanceof Map))
      wrong('schema_definition.fields', 'must be an object');
  }
  if (declaredFields instanceof Map) {
    if (declaredFields.size > schemaFieldsMax)
      wrong('schema_definition.fields', `may have at most ${schemaFieldsMax} fields`);
    for (const [name, rule] of declaredFields) {
      const path = `schema_definition.fields.${name}`;
      if (!isFieldPath(name)) wrong(path, 'is not a field path of 1 to 16 steps with dots between them');
      else if (!(rule instanceof Map)) wrong(path, 'must be an object with a type');
      else fields.set(name, parseRule(rule, path, name, wrong, isStored));
    }
  }
  const defaultsBytes = [...fields.values()].reduce((sum, rule) => sum + Buffer.byteLength(rule.defaultText ?? ''), 0);
  if (defaultsBytes > defaultsMaxBytes) {
    wrong('schema_definition.fields', `may have defaults of at most ${defaultsMaxBytes} bytes together`);
  }
  if (Object.keys(messages).length > 0) throw invalid('The schema is not valid', messages);
  return { fields };
}

function readDefinition(text: string): JsonValue {
  return translateJsonErrors(
    () => readJson(Buffer.from(text), { maxDepth: 64 }),
    (error) => invalid('The schema is not valid', { schema_definition: [error.message] }),
  );
}

const ruleKeys = new Set(['type', 'format', 'index', 'unique', 'required', 'default', 'validation', 'description']);
const validationKeys = new Set(['min', 'max', 'pattern', 'enum']);

/** The members of a rule, or of its validation; in one that is stored, what is null, and an empty pattern, is none. */
const membersOf = (object: JsonObject, isStored: boolean): JsonObject =>
  isStored
    ? new Map([...object].filter(([key, value]) => value !== null && !(key === 'pattern' && value === '')))
    : object;

function parseRule(
  stated: JsonObject,
  path: string,
  name: string,
  wrong: (path: string, message: string) => void,
  isStored: boolean,
): FieldRule {
  const rule = membersOf(stated, isStored);
  for (const key of rule.keys()) if (!ruleKeys.has(key)) wrong(`${path}.${key}`, 'is not a known field');
  const type = rule.get('type');
  if (type === undefined) wrong(`${path}.type`, 'is required');
  else if (!fieldTypes.includes(type as SchemaType)) wrong(`${path}.type`, `must be one of ${fieldTypes.join(', ')}`);
  const format = rule.get('format') ?? null;
  if (format !== null && (format !== 'day' || type !== 'date')) wrong(`${path}.format`, 'can be "day", of a date only');
  const flag = (key: string): boolean => {
    const value = rule.get(key);
    if (value !== undefined && typeof value !== 'boolean') wrong(`${path}.${key}`, 'must be true or false');
    return value === true;
  };
  const validation = rule.get('validation');
  if (validation !== undefined && !(validation instanceof Map)) wrong(`${path}.validation`, 'must be an object');
  const constraints: JsonObject =
    validation instanceof Map ? membersOf(validation, isStored) : new Map<string, JsonValue>();
  for (const key of constraints.keys())
    if (!validationKeys.has(key)) wrong(`${path}.validation.${key}`, 'is not a known field');
  const bound = (key: string): string | undefined => {
    const value = constraints.get(key);
    if (value !== undefined && !(value instanceof JsonNumber)) wrong(`${path}.validation.${key}`, 'must be a number');
    return value instanceof JsonNumber ? value.text : undefined;
  };
  const parsed: FieldRule = {
    type: type as SchemaType,
    isDay: type === 'date' && format === 'day',
    index: flag('index'),
    unique: flag('unique'),
    required: flag('required'),
    defaultText: undefined,
    min: bound('min'),
    max: bound('max'),
    pattern: parsePattern(constraints.get('pattern'), `${path}.validation.pattern`, wrong),
    enum: parseEnum(constraints.get('enum'), type as SchemaType, `${path}.validation.enum`, wrong),
  };
  if ((parsed.index || parsed.unique) && (name.length > indexedFieldLengthMax || !isIndexName(name))) {
    wrong(path, `must have at most ${indexedFieldLengthMax} printable characters to be indexed`);
  }
  const fallback = rule.get('default');
  if (fallback !== undefined && fallback !== null) {
    if (name.includes('.')) wrong(`${path}.default`, 'is possible for top-level fields only');
    else if (name === 'id') wrong(`${path}.default`, 'is not possible for id');
    for (const message of valueProblems(parsed, fallback)) wrong(`${path}.default`, message);
    parsed.defaultText = toText(fallback);
  }
  return parsed;
}

function parsePattern(
  value: JsonValue | undefined,
  path: string,
  wrong: (path: string, message: string) => void,
): RE2JS | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'string' || value === '' || value.length > patternLengthMax) {
    wrong(path, `must be a regular expression of 1 to ${patternLengthMax} characters`);
    return undefined;
  }
  try {
    // RE2 matches in linear time whatever the pattern: no document can make a write hang.
    return RE2JS.compile(value);
  } catch {
    wrong(path, 'is not a regular expression (RE2 syntax, without back-references and look-around)');
    return undefined;
  }
}

function parseEnum(
  value: JsonValue | undefined,
  type: SchemaType,
  path: string,
  wrong: (path: string, message: string) => void,
): FieldRule['enum'] {
  if (value === undefined) return undefined;
  if (!Array.isArray(value) || value.length === 0 || value.length > enumValuesMax) {
    wrong(path, `must be an array of 1 to ${enumValuesMax} values`);
    return undefined;
  }
  const canonical = value.map((allowed) => canonicalText(allowed, type === 'date'));
  const shown = value.map(toText).join(', ');
  // Never cut between the halves of a character.
  const head = shown.slice(0, enumTextLengthMax).replace(/[\ud800-\udbff]$/, '');
  return { allowed: new Set(canonical), text: shown.length > enumTextLengthMax ? `${head}…` : shown };
}

/** Whether two rules want the same type of a field. */
export const hasSameType = (one: FieldRule, other: FieldRule): boolean =>
  one.type === other.type && one.isDay === other.isDay;

/** A rule that asks for a type and nothing else. Null, and a field that is missing, fit it. */
export const ruleOfType = (type: SchemaType, isOfDays = false): FieldRule => ({
  type,
  isDay: isOfDays,
  index: false,
  unique: false,
  required: false,
  defaultText: undefined,
  min: undefined,
  max: undefined,
  pattern: undefined,
  enum: undefined,
});

/** Returns the problems with a field of a document; none where it is valid. Null counts as missing. */
export function fieldProblems(rule: FieldRule, bytes: Buffer, capture: Capture | undefined): string[] {
  if (capture === undefined) return rule.required && rule.defaultText === undefined ? ['is required and missing'] : [];
  if (capture.type === 'null') return rule.required ? ['is required and must not be null'] : [];
  if (rule.min === undefined && rule.max === undefined && !rule.pattern && !rule.enum) {
    // Nothing but the type is to be checked: most fields of most documents.
    if (rule.type === capture.type) return [];
    if (rule.type === 'date' && capture.type === 'string' && isDateOf(rule, scalarAt(bytes, capture) as string))
      return [];
  }
  return valueProblems(rule, valueAt(bytes, capture));
}

function valueProblems(rule: FieldRule, value: JsonValue): string[] {
  if (!hasType(rule, value)) return [`must be ${typeText(rule)}`];
  const problems: string[] = [];
  const { size, what } = measure(value);
  if (size !== undefined) {
    if (rule.min !== undefined && compareDecimals(size, rule.min) < 0)
      problems.push(`must be at least ${rule.min}${what}`);
    if (rule.max !== undefined && compareDecimals(size, rule.max) > 0)
      problems.push(`must be at most ${rule.max}${what}`);
  }
  if (rule.pattern && typeof value === 'string' && !rule.pattern.matcher(value).find()) {
    problems.push(`must match the pattern ${rule.pattern.pattern()}`);
  }
  if (rule.enum && !rule.enum.allowed.has(canonicalText(value, rule.type === 'date'))) {
    problems.push(`must be one of ${rule.enum.text}`);
  }
  return problems;
}

function hasType(rule: Pick<FieldRule, 'type' | 'isDay'>, value: JsonValue): boolean {
  switch (rule.type) {
    case 'string':
      return typeof value === 'string';
    case 'number':
      return value instanceof JsonNumber;
    case 'integer':
      return value instanceof JsonNumber && isWhole(value.text);
    case 'boolean':
      return typeof value === 'boolean';
    case 'date':
      return typeof value === 'string' && isDateOf(rule, value);
    case 'object':
      return value instanceof Map;
    case 'array':
      return Array.isArray(value);
  }
}

const isDateOf = (rule: Pick<FieldRule, 'isDay'>, text: string): boolean => (rule.isDay ? isDay(text) : isTimed(text));

/** Names the values of a type in messages, after `must be`. */
function typeText({ type, isDay: isOfDays }: Pick<FieldRule, 'type' | 'isDay'>): string {
  switch (type) {
    case 'date':
      return isOfDays ? 'a day, YYYY-MM-DD' : 'an RFC 3339 date and time with offset';
    case 'integer':
      return 'a number without a fraction';
    default:
      return `of type ${type}`;
  }
}

/** The size that min and max bound: a number's value, a string's characters, an array's elements. */
function measure(value: JsonValue): { size: string | undefined; what: string } {
  if (value instanceof JsonNumber) return { size: value.text, what: '' };
  if (typeof value === 'string') return { size: String([...value].length), what: ' characters long' };
  if (Array.isArray(value)) return { size: String(value.length), what: ' elements long' };
  return { size: undefined, what: '' };
}
