import type { DescribedRequests } from './described-requests';
import type { SubjectRequest } from './request-subject';

/** A request that differs from a valid one by one member. */
export interface Alteration {
  request: SubjectRequest;
  kind: (typeof kindsOfBody)[number];
  /** What is different, for people. */
  text: string;
  /** Whether a name in a body is one that its object does not have. */
  isUnknown: boolean;
  /** Whether the OpenAPI document says that this object has no other members. */
  isClosed: boolean;
}

type Random = () => number;
type JsonObject = Record<string, unknown>;

const kindsOfBody = ['null', 'empty', 'misspelt', 'mistyped', 'unknown', 'reordered'] as const;
const kindsOfUrl = ['empty', 'misspelt', 'mistyped', 'unknown'] as const;

/** Alters one member of a request, in its body or its URL. */
export function alter(request: SubjectRequest, random: Random, described: DescribedRequests): Alteration {
  const hasQuery = Object.keys(request.query ?? {}).length > 0;
  if (request.body === undefined || (hasQuery && random() < 0.5)) return alterUrl(request, random);
  const objects = objectsIn(request.body, []);
  const { object, address } = pick(random, objects);
  const kind = pick(random, kindsOfBody);
  const name = pick(random, Object.keys(object));
  const isUnknown = (other: string): boolean => !(other in object);
  const changed = (other: JsonObject, text: string, unknown?: string): Alteration => ({
    request: { ...request, body: replaced(request.body, address, other) as JsonObject },
    kind,
    text: `${kind} ${[...address, text].join('.')}`,
    isUnknown: unknown !== undefined && isUnknown(unknown),
    isClosed: described.isClosed(
      request.operation.id,
      address.map((step) => (typeof step === 'number' ? '[]' : step)),
    ),
  });
  switch (kind) {
    case 'null':
      return changed({ ...object, [name]: null }, name);
    case 'empty':
      return changed({ ...object, [name]: pick(random, [{}, [], '']) }, name);
    case 'mistyped':
      return changed({ ...object, [name]: mistyped(object[name], random) }, name);
    case 'misspelt': {
      const other = misspelt(name, random);
      const entries = Object.entries(object).map(([key, value]) => [key === name ? other : key, value] as const);
      return changed(Object.fromEntries(entries), `${name} as ${other}`, other);
    }
    case 'unknown':
      return changed({ ...object, unheard_of: pick(random, [1, null, 'a', {}, []]) }, 'unheard_of', 'unheard_of');
    case 'reordered':
      return changed(Object.fromEntries(Object.entries(object).reverse()), '');
  }
}

function alterUrl(request: SubjectRequest, random: Random): Alteration {
  const query = request.query ?? {};
  const names = Object.keys(query);
  const kind = names.length === 0 ? 'unknown' : pick(random, kindsOfUrl);
  const name = names.length === 0 ? '' : pick(random, names);
  const others: Record<(typeof kindsOfUrl)[number], Record<string, string>> = {
    empty: { ...query, [name]: '' },
    mistyped: {
      ...query,
      [name]: pick(random, ['-1', 'x', '1e9', 'true', '[', '{"a":1}', '\u0000', '99999999999999999999']),
    },
    misspelt: Object.fromEntries(
      Object.entries(query).map(([key, value]) => [key === name ? misspelt(key, random) : key, value]),
    ),
    unknown: { ...query, unheard_of: '1' },
  };
  return {
    request: { ...request, query: others[kind] },
    kind,
    text: `${kind} ?${name}`,
    isUnknown: false,
    isClosed: false,
  };
}

interface PlacedObject {
  object: JsonObject;
  address: Array<string | number>;
}

/** The objects with members in a value, each with its address. */
function objectsIn(value: unknown, address: Array<string | number>): PlacedObject[] {
  if (Array.isArray(value)) return value.flatMap((one, at) => objectsIn(one, [...address, at]));
  if (typeof value !== 'object' || value === null) return [];
  const below = Object.entries(value).flatMap(([name, one]) => objectsIn(one, [...address, name]));
  return Object.keys(value).length === 0 ? below : [{ object: value as JsonObject, address }, ...below];
}

/** A value with another one at an address. */
function replaced(value: unknown, [step, ...rest]: ReadonlyArray<string | number>, other: unknown): unknown {
  if (step === undefined) return other;
  if (Array.isArray(value))
    return value.map((one, at) => (at === step ? replaced(one, rest, other) : (one as unknown)));
  const object = value as JsonObject;
  return Object.fromEntries(
    Object.entries(object).map(([name, one]) => [name, name === step ? replaced(one, rest, other) : one]),
  );
}

/** A value of another type that looks alike. */
function mistyped(value: unknown, random: Random): unknown {
  const others: unknown[] = [JSON.stringify(value), [value], { value }, 0.5, -1, true, 'x', 1e300];
  return pick(
    random,
    others.filter((other) => typeof other !== typeof value || typeof other === 'object'),
  );
}

/** A name with two letters swapped, or one lost, doubled or in another case. */
function misspelt(name: string, random: Random): string {
  const at = Math.floor(random() * Math.max(1, name.length - 1));
  const [before, letter = 'x', next = '', after] = [name.slice(0, at), name[at], name[at + 1], name.slice(at + 2)];
  const forms = [
    `${before}${next}${letter}${after}`,
    `${before}${next}${after}` || 'x',
    `${before}${letter}${letter}${next}${after}`,
    `${before}${letter.toUpperCase()}${next}${after}`,
  ];
  return (
    pick(
      random,
      forms.filter((form) => form !== name && form !== ''),
    ) ?? `${name}x`
  );
}

export const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random() * items.length)]!;
