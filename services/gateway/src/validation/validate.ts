import { invalid, type FieldMessages } from '@granary/shared/errors';
import type { z } from 'zod';

/** Parses with a schema. Throws VALIDATION_FAILED with messages for each field path. `where` names the root. */
export function validate<S extends z.ZodType>(schema: S, value: unknown, where: string): z.output<S> {
  const result = schema.safeParse(value, { error: (issue) => messageOf(issue) });
  if (result.success) return result.data;
  const messages: FieldMessages = Object.create(null) as FieldMessages;
  const add = (path: readonly PropertyKey[], message: string) =>
    (messages[fieldPath(path) || where] ??= []).push(message);
  for (const issue of result.error.issues) {
    if (issue.code !== 'unrecognized_keys') add(issue.path, issue.message);
    else for (const key of issue.keys) add([...issue.path, key], 'is not a known field');
  }
  throw invalid(`The ${where} is not valid`, { ...messages });
}

/** `data[3].address.city` */
export function fieldPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, step) => {
    if (typeof step === 'number') return `${text}[${step}]`;
    return text === '' ? String(step) : `${text}.${String(step)}`;
  }, '');
}

interface Issue {
  code?: string;
  input?: unknown;
  expected?: unknown;
  origin?: unknown;
  minimum?: unknown;
  maximum?: unknown;
  values?: readonly unknown[];
}

const unitByOrigin = new Map<unknown, string>([
  ['string', ' characters'],
  ['array', ' elements'],
  ['record', ' members'],
]);

/** The message for a missing value, or for a wrong one; undefined leaves the text to the schema. */
function messageOf(issue: Issue): string | undefined {
  if (issue.code === 'unrecognized_keys') return undefined;
  if (issue.input === undefined) return 'is required';
  const unit = unitByOrigin.get(issue.origin) ?? '';
  switch (issue.code) {
    case 'invalid_type':
      return wrongType(issue);
    case 'too_small':
      return `must be at least ${String(issue.minimum)}${unit && `${unit} long`}`;
    case 'too_big':
      return `must be at most ${String(issue.maximum)}${unit && `${unit} long`}`;
    case 'invalid_value':
      return `must be one of ${(issue.values ?? []).map((value) => JSON.stringify(value)).join(', ')}`;
    default:
      return undefined;
  }
}

function wrongType(issue: Issue): string {
  const expected = issue.expected === 'int' ? 'a whole number' : withArticle(String(issue.expected));
  const actual = issue.expected === 'int' && typeof issue.input === 'number' ? 'a fraction' : typeName(issue.input);
  return `must be ${expected}, not ${actual}`;
}

function typeName(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  return withArticle(typeof value);
}

function withArticle(type: string): string {
  const name = type === 'record' ? 'object' : type;
  return /^[aeiou]/.test(name) ? `an ${name}` : `a ${name}`;
}
