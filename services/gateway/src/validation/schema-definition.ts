import { z } from 'zod';

const fieldTypes = ['string', 'number', 'integer', 'boolean', 'date', 'object', 'array'] as const;

const bound = z.number().optional().describe('Bounds the value of a number, the length of a string or of an array');

const validation = z.strictObject({
  min: bound,
  max: bound,
  pattern: z.string().min(1).max(200).optional().describe('A regular expression in RE2 syntax, unanchored'),
  enum: z.array(z.unknown()).min(1).max(200).optional().describe('The allowed values'),
});

/** The rules of one field. */
const fieldRule = z
  .strictObject({
    type: z
      .enum(fieldTypes)
      .describe(
        'JSON type of the value; a `date` is RFC 3339 text with an offset, an `integer` a number without a fraction',
      ),
    format: z.literal('day').nullish().describe('Of a `date`: its values are days, `2024-01-01`'),
    required: z.boolean().optional().describe('Every document must have the field, and not as null'),
    unique: z.boolean().optional().describe('No two documents have the same value; makes an index'),
    index: z.boolean().optional().describe('Makes an index named `<collection>_<field>_idx`'),
    default: z.unknown().optional().describe('Stored where a document lacks the field; for top-level fields only'),
    validation: validation.optional().describe('Further rules for the value'),
    description: z.unknown().optional().describe('For readers of the schema; it has no effect'),
  })
  .meta({ id: 'FieldRule', description: 'The rules of a field' });

/**
 * `schema_definition` as the document presents it. The data service checks it, and more of it: that a default fits its
 * rule, that a pattern is a regular expression.
 */
export const schemaDefinition = z
  .strictObject({
    fields: z
      .record(z.string(), fieldRule)
      .optional()
      .describe('The rules by field; dotted names reach nested fields. At most 200. Fields without a rule are free'),
  })
  .meta({
    id: 'SchemaDefinition',
    examples: [{ fields: { email: { type: 'string', required: true, unique: true }, age: { type: 'number' } } }],
  });
