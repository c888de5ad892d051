import type { z } from 'zod';

const published = new WeakMap<object, z.ZodType>();

/** A schema that the document shows as another one: where a service checks more than the gateway does. */
export function publishedAs<S extends z.ZodType>(schema: S, as: z.ZodType): S {
  const copy = schema.clone();
  published.set(copy, as);
  return copy;
}

/** A description makes a copy of a schema, which knows what it is a copy of. */
export function publishedFor(schema: z.core.$ZodType): z.ZodType | undefined {
  for (let one: z.core.$ZodType | undefined = schema; one; one = one._zod.parent) {
    const as = published.get(one);
    if (as) return as;
  }
  return undefined;
}
