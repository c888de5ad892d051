import { jsonText } from '../exact-json.ts';
import { docComment, memberName, textLiteral } from './spelling.ts';

/** A schema as OpenAPI documents of apps have them. */
export interface Schema {
  $ref?: string;
  type?: string | readonly string[];
  enum?: readonly unknown[];
  description?: string;
  properties?: Record<string, Schema>;
  /** The members that each record has; not there where an object may have other members than its `properties`. */
  'x-granary-required'?: readonly string[];
}

/** A type as the parts of a union; most have one. */
export type Type = readonly string[];

/** A member of an object type. */
export interface Member {
  name: string;
  isOptional?: boolean;
  description?: string | undefined;
  type: Type;
}

/** Columns of a line, beyond which prettier breaks it. */
const widthMax = 120;
const indent = '  ';

const indented = (text: string): string => text.replace(/^(?=.)/gm, indent);

/** An object type with these members, which stands `level` objects deep in the file. */
export function objectType(members: readonly Member[], level: number, index?: string): string {
  if (members.length === 0) return '{}';
  const lines = members.flatMap(({ name, isOptional = false, description = '', type }) => {
    const head = `${memberName(name)}${isOptional ? '?' : ''}:`;
    return [...docComment(description), memberLine(head, type, (level + 1) * indent.length)];
  });
  if (index !== undefined) lines.push(index);
  return `{\n${indented(lines.join('\n'))}\n}`;
}

/** A member in one line, or in a line for each part of a union that is too wide. */
function memberLine(head: string, type: Type, column: number): string {
  const line = `${head} ${type.join(' | ')};`;
  const isTooWide = !line.includes('\n') && column + line.length > widthMax;
  return isTooWide && type.length > 1 ? `${head}\n${type.map((part) => `${indent}| ${part}`).join('\n')};` : line;
}

/** The type of the values of a schema that refers to no other one; it stands `level` objects deep in the file. */
export function schemaType(schema: Schema, level: number): Type {
  if (schema.enum && schema.enum.length > 0) return [...new Set(schema.enum.map(literalType))];
  const { type = [] } = schema;
  const kinds = typeof type === 'string' ? [type] : type;
  return kinds.length === 0 ? ['Json'] : [...new Set(kinds.map((kind) => kindType(kind, schema, level)))];
}

function literalType(value: unknown): string {
  if (typeof value === 'object' && value !== null) return 'Json';
  const text = jsonText(value);
  return text.startsWith('"') ? textLiteral(JSON.parse(text) as string) : text;
}

function kindType(kind: string, schema: Schema, level: number): string {
  switch (kind) {
    case 'string':
    case 'number':
    case 'boolean':
    case 'null':
      return kind;
    case 'integer':
      return 'number';
    case 'array':
      return 'Json[]';
    case 'object':
      return recordType(schema, level);
    default:
      return 'Json';
  }
}

/** The type of an object without the member `omitted`. It is open where the service does not know all its members. */
export function recordType(schema: Schema, level: number, omitted?: string): string {
  const { properties = {}, 'x-granary-required': required } = schema;
  const members = Object.entries(properties)
    .filter(([name]) => name !== omitted)
    .map(([name, property]) => ({
      name,
      isOptional: !required?.includes(name),
      description: property.description,
      type: schemaType(property, level + 1),
    }));
  if (required) return objectType(members, level);
  return members.length === 0 ? 'JsonObject' : objectType(members, level, '[member: string]: Json | undefined;');
}
