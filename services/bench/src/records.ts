/** The names of a record whose members are all known. */
export const namesOf = <Name extends string>(record: Partial<Record<Name, unknown>>): Name[] =>
  Object.keys(record) as Name[];

/** A record with a value for each of the names. */
export const recordOf = <Name extends string, Value>(
  names: readonly Name[],
  valueOf: (name: Name) => Value,
): Record<Name, Value> => Object.fromEntries(names.map((name) => [name, valueOf(name)])) as Record<Name, Value>;
