import type { JsonObject, JsonValue } from '@granary/shared/json/value';
import { typeOf } from '../query/plan/relation';
import type { SchemaType } from '../catalog/schema';
import type { FieldType } from '../values/field-type';
import { readObject, type DescribedCollection } from './content';

/** The known types of the fields of a collection. */
export interface CollectionTypes {
  name: string;
  /** The `fields` of its `schema_definition`. */
  rules: JsonObject;
  /** The indexed fields beside `id`, by path. */
  indexed: ReadonlyMap<string, FieldType>;
  typeOf: (path: readonly string[]) => FieldType;
}

export function typesOf({ name, schemaText, indexes }: DescribedCollection): CollectionTypes {
  const schemaFields = readObject(schemaText).get('fields');
  const rules = schemaFields instanceof Map ? schemaFields : new Map<string, JsonValue>();
  const schema = {
    fields: new Map(
      [...rules].flatMap(([field, rule]) =>
        rule instanceof Map
          ? [[field, { type: rule.get('type') as SchemaType, isDay: rule.get('format') === 'day' }] as const]
          : [],
      ),
    ),
  };
  const typed = (path: readonly string[]) => typeOf({ indexes, schema }, path);
  const fields = new Set(indexes.flatMap((index) => index.fields));
  fields.delete('id');
  return {
    name,
    rules,
    indexed: new Map([...fields].map((field) => [field, typed(field.split('.'))])),
    typeOf: typed,
  };
}
