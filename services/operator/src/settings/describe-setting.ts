import { z } from 'zod';

/** The row of a setting in a table, in Markdown. */
export interface SettingRow {
  name: string;
  /** The default, or the words that stand for it; empty: the setting has none and is not required. */
  defaultText: string;
  /** The values that it accepts, where a range or a list says it; otherwise empty. */
  values: string;
  description: string;
}

/**
 * Describes a setting by its schema: `.describe()` holds its description, `.meta({ description, defaultText })` also
 * says in words what holds without it. Throws an Error for a setting without a description.
 */
export function describeSetting(name: string, schema: z.ZodType): SettingRow {
  const { description, defaultText } = schema.meta() ?? {};
  if (description === undefined) throw new Error(`${name} has no description: add .describe() to its schema`);
  const byDefault = schema.safeParse(undefined);
  const text = byDefault.success ? shown(name, byDefault.data) : 'required';
  return {
    name,
    defaultText: typeof defaultText === 'string' ? defaultText : text,
    values: valuesOf(name, withoutDefault(schema)),
    description,
  };
}

/** The schema inside of defaults, optional ones and conversions of the text. */
function withoutDefault(schema: z.core.$ZodType): z.core.$ZodType {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional) return withoutDefault(schema.unwrap());
  // A stringbool is a conversion to a boolean; a preprocessed schema follows its conversion, others precede it.
  if (schema instanceof z.ZodPipe) {
    const isFollowed = schema.in instanceof z.ZodTransform || schema.out instanceof z.ZodBoolean;
    return withoutDefault(isFollowed ? schema.out : schema.in);
  }
  return schema;
}

function valuesOf(name: string, schema: z.core.$ZodType): string {
  if (schema instanceof z.ZodBoolean) return '`true`, `false`';
  if (schema instanceof z.ZodEnum) return schema.options.map((option) => `\`${option}\``).join(', ');
  if (!(schema instanceof z.ZodNumber)) return '';
  const { minValue, maxValue } = schema;
  const least = shown(name, minValue ?? 0);
  return maxValue === null || maxValue === Number.MAX_SAFE_INTEGER
    ? `at least ${least}`
    : `${least} to ${shown(name, maxValue)}`;
}

const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A default or a bound: bytes in the largest unit that divides them, numbers with separators. */
function shown(name: string, value: unknown): string {
  if (typeof value === 'boolean') return `\`${value}\``;
  if (typeof value === 'string') return value === '' ? '' : `\`${value}\``;
  if (typeof value !== 'number') return '';
  let [amount, unit] = [value, 0];
  if (name.endsWith('_BYTES')) {
    while (amount !== 0 && amount % 1024 === 0 && unit < units.length - 1) [amount, unit] = [amount / 1024, unit + 1];
  }
  const digits = Number.isInteger(amount) ? amount.toLocaleString('en-US') : String(amount);
  return unit === 0 ? digits : `${digits} ${units[unit]}`;
}
