/** A value of JSON. */
export type Json = string | number | boolean | null | Json[] | { [member: string]: Json };

export type JsonObject = { [member: string]: Json };

/** The parts of an app, as `granary types` writes them. Each member goes by the name of what it describes. */
export interface AppTypes {
  collections: object;
  views: object;
  queries: object;
}

/** An app of which no types are known: every name is taken, and documents are objects. */
export interface AnyApp extends AppTypes {
  collections: Record<string, { document: JsonObject }>;
  views: Record<string, { row: JsonObject; variables: Record<string, unknown> }>;
  queries: Record<string, { row: JsonObject; parameters: Record<string, unknown> }>;
}

export type Name<Group> = keyof Group & string;
/** The member of the description of one collection, view or query. */
export type MemberOf<Group, N extends keyof Group, Member extends string> =
  Group[N] extends Record<Member, infer T> ? T : never;

/** A document as it is stored. */
export type Stored<D> = D & { id: string };

/** A document that is written; the service makes an `id` where there is none. */
export type Written<D> = Omit<D, 'id'> & { id?: string | null };

/** Members to be changed; a member that is null is removed, as in JSON merge patches (RFC 7396). */
export type Patch<D> = { [F in keyof D]?: NonNullable<D[F]> extends object ? unknown : D[F] | null | undefined };

/** A path that leads into objects, such as `address.city`. */
export type NestedPath = `${string}.${string}`;
export type Field<D> = (keyof D & string) | 'id' | NestedPath;
/** A field to sort by; `-` before it descends. */
export type SortField<D> = Field<D> | `-${Field<D>}`;

interface Equality<V> {
  is?: V | null;
  isNot?: V | null;
  in?: readonly (V | null)[];
  notIn?: readonly (V | null)[];
  inDataset?: string;
  isNull?: boolean;
  isNotNull?: boolean;
  exists?: boolean;
}

interface Order<V> {
  gt?: V;
  gte?: V;
  lt?: V;
  lte?: V;
  between?: readonly [V, V] | { from: V; to: V };
}

interface TextOperators {
  contains?: string;
  startsWith?: string;
  endsWith?: string;
  includesCaseInsensitive?: string;
  startsWithCaseInsensitive?: string;
  endsWithCaseInsensitive?: string;
  /** A regular expression in the syntax of RE2. */
  regExpMatches?: string;
  CIDR?: string | readonly string[];
  isLocalIp?: boolean;
  isExternalIp?: boolean;
  inCountry?: string | readonly string[];
  /** The value in Base64. */
  b64?: string;
  /** Needs a full-text index. */
  $search?: string;
}

/** A condition on one field. */
export type Condition<V> = [V] extends [string]
  ? V | null | (Equality<V> & Order<V> & TextOperators)
  : [V] extends [number]
    ? V | null | (Equality<V> & Order<V>)
    : [V] extends [boolean]
      ? V | null | Equality<V>
      : [V] extends [readonly (infer E)[]]
        ? Equality<V> & { contains?: E }
        : unknown;

interface Logic<F> {
  and?: readonly F[];
  or?: readonly F[];
  not?: readonly F[];
}

/** Conditions that a document meets all of: by field, or by a path with dots, of which nothing is checked. */
export type Filter<D> = string extends keyof D
  ? { [member: string]: unknown }
  : { [F in keyof D | 'id']?: Condition<F extends keyof D ? NonNullable<D[F]> : string> } & {
      [path: NestedPath]: unknown;
    } & Logic<Filter<D>>;
