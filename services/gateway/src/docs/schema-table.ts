import { variantsOf, type Parameter, type Schema } from './document';
import { joined, markup, prose, table, type Markup } from './markup';

/** One line of a table of fields or parameters. */
interface Field {
  name: string;
  /** Shown beside the name: location, whether it is required. */
  note: string;
  schema: Schema;
  description: string | undefined;
}

export function parameterTable(parameters: readonly Parameter[]): Markup {
  return fieldsTable(
    'Parameter',
    parameters.map(({ name, in: where, required, explode, schema, description = schema.description }) => ({
      // This entry describes all other parameters, so it has no name.
      name: explode ? '…' : name,
      note: [where, required && 'required', explode && 'any number of them'].filter(Boolean).join(', '),
      schema: explode ? additional(schema) : schema,
      description,
    })),
  );
}

function additional({ additionalProperties }: Schema): Schema {
  return typeof additionalProperties === 'object' ? additionalProperties : {};
}

/** The fields of a schema, nested ones by their paths; undefined if there are none. */
export function fieldTable(schema: Schema): Markup | undefined {
  const fields = fieldsOf(schema, '');
  return fields.length === 0 ? undefined : fieldsTable('Field', fields);
}

function fieldsOf(schema: Schema, path: string): Field[] {
  return variantsOf(schema).flatMap(({ items, properties = {}, required = [] }) => {
    if (items) return fieldsOf(items, `${path}[]`);
    return Object.entries(properties).flatMap(([key, property]) => {
      const name = path === '' ? key : `${path}.${key}`;
      const note = required.includes(key) ? 'required' : '';
      return [{ name, note, schema: property, description: property.description }, ...fieldsOf(property, name)];
    });
  });
}

function fieldsTable(heading: string, fields: readonly Field[]): Markup {
  const rows = fields.map(({ name, note, schema, description }) => {
    const about = description === undefined ? [] : [markup`${prose(description)}`];
    return [
      markup`<code>${name}</code> <span>${note}</span>`,
      typeOf(schema),
      joined([...about, ...limitsOf(schema)], '; '),
    ];
  });
  return table('fields', [heading, 'Type', 'About'], rows);
}

/** The type of a value in few words. */
export function typeOf(schema: Schema): Markup {
  const { $ref, anyOf, type, items, additionalProperties, format } = schema;
  if ($ref !== undefined) {
    const name = $ref.slice($ref.lastIndexOf('/') + 1);
    return markup`<a href="#schema-${name}">${name}</a>`;
  }
  if (anyOf) return markup`${joined(anyOf.map(typeOf), ' or ')}`;
  if ('const' in schema) return json(schema.const);
  if (schema.enum) return markup`${joined(schema.enum.map(json), ' or ')}`;
  if (Array.isArray(type))
    return markup`${joined(
      type.map((one) => typeOf({ ...schema, type: one })),
      ' or ',
    )}`;
  if (type === 'array') return items ? markup`array of ${typeOf(items)}` : markup`array`;
  if (typeof additionalProperties === 'object' && Object.keys(additionalProperties).length > 0) {
    return markup`object of ${typeOf(additionalProperties)}`;
  }
  if (format === 'binary') return markup`bytes`;
  return markup`${type ?? 'any JSON'}${format === undefined ? '' : `, ${format}`}`;
}

/** Longer patterns are omitted. */
const patternLengthMax = 60;

function limitsOf(schema: Schema): Markup[] {
  const limits = variantsOf(schema).flatMap((variant) => [
    ...range(variant.minimum, variant.maximum, ''),
    ...range(variant.minLength, variant.maxLength, ' characters'),
    ...range(variant.minItems, variant.maxItems, ' elements'),
    ...(variant.pattern !== undefined && variant.pattern.length <= patternLengthMax
      ? [markup`<code>${variant.pattern}</code>`]
      : []),
  ]);
  if ('default' in schema) limits.push(markup`default ${json(schema.default)}`);
  return limits;
}

/** The bounds of a range, without those of the integer type. */
function range(min: number | undefined, max: number | undefined, unit: string): Markup[] {
  const from = min === undefined || min <= Number.MIN_SAFE_INTEGER ? undefined : min.toLocaleString('en');
  const to = max === undefined || max >= Number.MAX_SAFE_INTEGER ? undefined : max.toLocaleString('en');
  if (from !== undefined && to !== undefined) return [markup`${from} to ${to}${unit}`];
  if (from !== undefined) return [markup`at least ${from}${unit}`];
  return to === undefined ? [] : [markup`at most ${to}${unit}`];
}

function json(value: unknown): Markup {
  return markup`<code>${JSON.stringify(value)}</code>`;
}
