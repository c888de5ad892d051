import { z } from 'zod';
import { publishedFor } from '../validation/published-as';

export type Json = Record<string, unknown>;

/** The named schemas of a document, by name. */
export type Components = Record<string, unknown>;

/** JSON Schema of a zod schema; the named ones inside it move to the components. */
export function toSchema(schema: z.ZodType, io: 'input' | 'output', components: Components): Json {
  return relocate(jsonSchemaOf(schema, io), components) as Json;
}

function jsonSchemaOf(schema: z.ZodType, io: 'input' | 'output'): Json {
  const made = z.toJSONSchema(schema, {
    io,
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      const as = publishedFor(zodSchema);
      if (!as) return;
      const { description } = jsonSchema;
      for (const key of Object.keys(jsonSchema)) delete (jsonSchema as Json)[key];
      Object.assign(jsonSchema, jsonSchemaOf(as, io), description === undefined ? {} : { description });
    },
  });
  const { $schema: _, ...rest } = made as Json;
  return rest;
}

function relocate(value: unknown, components: Components): unknown {
  if (Array.isArray(value)) return value.map((element) => relocate(element, components));
  if (typeof value !== 'object' || value === null) return value;
  const { $defs, ...members } = value as Json;
  for (const [name, definition] of Object.entries(($defs ?? {}) as Json)) {
    const { id: _, ...rest } = definition as Json;
    components[name] ??= relocate(rest, components);
  }
  // A format says it in one word, and its pattern in 300 characters.
  if (members['format'] === 'date-time') delete members['pattern'];
  hoistDescription(members);
  return Object.fromEntries(
    Object.entries(members).map(([key, member]) => [
      key,
      key === '$ref' && typeof member === 'string'
        ? member.replace('#/$defs/', '#/components/schemas/')
        : relocate(member, components),
    ]),
  );
}

/** Moves the description of a type in a union with null to the union itself. */
function hoistDescription(members: Json): void {
  const { anyOf, description } = members;
  if (!Array.isArray(anyOf) || anyOf.length !== 2 || description !== undefined) return;
  const [first, second] = anyOf as [Json, Json];
  if (second['type'] !== 'null' || first['description'] === undefined) return;
  const { description: hoisted, ...rest } = first;
  members['anyOf'] = [rest, second];
  members['description'] = hoisted;
}
