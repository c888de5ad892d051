import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { Call } from '@granary/shared/rpc/types';
import type { JsonValue } from '@granary/shared/json/value';
import type { Code } from '../errors/codes';
import type { Answer } from '../http/answer';
import type { Access, Caller, CallerOf } from './access';
import type { GatewayContext } from './gateway-context';
import { pathParameters, type PathParameter } from './path-parameters';
import type { Tag } from './tags';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

type NamesIn<P extends string> = P extends `${string}{${infer Name}}${infer Rest}` ? Name | NamesIn<Rest> : never;

/** A body that is read as a whole, parsed strictly and checked by a schema; the handler gets the schema's output. */
export interface JsonBody<S extends z.ZodType = z.ZodType> {
  kind: 'json';
  schema: S;
  /** An example for the document, if the minimum that the schema requires is not a useful one. */
  example?: unknown;
  limitBytes: number;
  /** True: no body is `{}`. */
  optional?: boolean;
}
/** A body that a service parses: forwarded byte for byte. */
export interface RawBody {
  kind: 'raw';
  /** The bodies that are taken, by content type; the schemas only document them. */
  content: Readonly<Record<string, MediaTypeDoc>>;
  /** Content types that are taken too; left out of the document where generators would make one model twice. */
  alsoTaken?: readonly string[];
  limitBytes: number;
  /** True: an empty body of another type than JSON is a text without characters. */
  mayBeEmpty?: boolean;
}
/** A body that the handler streams from `incoming`; also for answers that it streams to `outgoing`. */
export interface StreamBody {
  kind: 'stream';
  /** The bodies by content type, for the document; empty for a route without a body. */
  content: Readonly<Record<string, MediaTypeDoc>>;
}
export interface MediaTypeDoc {
  schema: z.ZodType;
  example?: unknown;
}
export type Body = JsonBody | RawBody | StreamBody;

type BodyOf<B extends Body | undefined> =
  B extends JsonBody<infer S> ? z.output<S> : B extends RawBody ? Buffer : undefined;

/** The handler gets every parameter of the query string, in a Map; this only documents them. */
export interface OpenQuery {
  reserved: z.ZodObject;
  /** The parameters with names that the users of an application choose. */
  others: { name: string; description: string; example: Readonly<Record<string, string | number | boolean>> };
}
export type Query = z.ZodObject | OpenQuery;
type QueryOf<Q extends Query | undefined> = Q extends OpenQuery
  ? ReadonlyMap<string, string>
  : Q extends z.ZodObject
    ? z.output<Q>
    : undefined;

export interface RouteRequest<Path extends string = string, C = Caller, Q = unknown, B = unknown> {
  call: Call;
  caller: C;
  path: Record<Path, string>;
  query: Q;
  body: B;
  /** A JSON body as it was written: numbers keep their text. */
  jsonTree: JsonValue;
  incoming: Request;
  outgoing: Response;
  /** The path of the route, with `{name}` for parameters. */
  routePath: string;
  /** Gives back the place among the requests that are worked on, before a wait for what others do. */
  leavePlace: () => void;
  /** Gives back all that the request holds, before an answer that goes on for as long as the client likes. */
  leaveLimits: () => void;
}

/** The path of a request without prefix and trailing slash: what idempotency keys are bound to. */
export function canonicalPathOf({ routePath, path }: Pick<RouteRequest, 'routePath' | 'path'>): string {
  let parts = partsByPath.get(routePath);
  if (!parts) partsByPath.set(routePath, (parts = routePath.split(/\{(\w+)\}/)));
  let text = parts[0]!;
  for (let index = 1; index < parts.length; index += 2) text += path[parts[index]!]! + parts[index + 1]!;
  return text;
}

/** The paths of the routes in parts, of which every second is the name of a parameter. */
const partsByPath = new Map<string, string[]>();

export interface ResponseDoc {
  description: string;
  schema?: z.ZodType;
  example?: unknown;
  /** Default: application/json where there is a schema. */
  contentTypes?: readonly string[];
  /** The values that the `code` of an error can have. */
  codes?: readonly Code[];
  /** Headers beside the common ones: name → description. */
  headers?: Readonly<Record<string, string>>;
}

/** A request header that a handler reads. */
export interface HeaderDoc {
  description: string;
  /** Whether a request without it is refused. */
  required?: true;
  /** A regular expression, and the bounds of the length. */
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  example?: string;
}

interface RouteDefinition<P extends string, A extends Access, Q extends Query | undefined, B extends Body | undefined> {
  method: Method;
  /** The path as documented, without prefix; `{name}` for a parameter of `pathParameters`. */
  path: P;
  /** The prefixes that may stand before the path; the first is the documented one. */
  prefixes?: readonly string[];
  /** Name of the operation in the document. */
  id: string;
  summary: string;
  description: string;
  tag: Tag;
  /** Why the route is not in the document: it answers 501, or is another spelling of one that is. */
  undocumented?: 'planned' | 'alias';
  /** Examples of path parameters, where the usual one would not do. */
  pathExamples?: Readonly<Partial<Record<PathParameter, string>>>;
  auth: A;
  query?: Q;
  /** Request headers that the handler reads, for the document. */
  headers?: Readonly<Record<string, HeaderDoc>>;
  body?: B;
  /** The answers of the route; errors that every route can have are added. */
  responses: Readonly<Record<number, ResponseDoc>>;
  /** Answered whatever the load and while stopping. */
  urgent?: boolean;
  /** Whether a request has limits of its own, for its answer goes on for as long as the client likes. */
  isEndless?: (incoming: Request) => boolean;
  /** Resolves to nothing once it has written the answer to `outgoing` itself. */
  handle(
    context: GatewayContext,
    request: RouteRequest<NamesIn<P>, CallerOf<A>, QueryOf<Q>, BodyOf<B>>,
  ): Promise<Answer | undefined>;
}

/** One line of the table that both the Express routes and the OpenAPI document are made from. */
export type Route = Omit<
  RouteDefinition<string, Access, Query | undefined, Body | undefined>,
  'handle' | 'prefixes'
> & {
  prefixes: readonly string[];
  /** The content types of a body that is read as a whole. */
  contentTypes: readonly string[];
  handle(context: GatewayContext, request: RouteRequest): Promise<Answer | undefined>;
};

const defaultPrefixes = ['/api', ''];

export function route<
  const P extends string,
  const A extends Access,
  Q extends Query | undefined = undefined,
  B extends Body | undefined = undefined,
>(definition: RouteDefinition<P, A, Q, B>): Route {
  for (const [, parameter] of definition.path.matchAll(/\{(\w+)\}/g)) {
    if (!Object.hasOwn(pathParameters, parameter!))
      throw new Error(`${definition.path}: unknown parameter ${parameter}`);
  }
  const { body } = definition;
  const contentTypes =
    body?.kind === 'raw' ? [...Object.keys(body.content), ...(body.alsoTaken ?? [])] : ['application/json'];
  return { prefixes: defaultPrefixes, contentTypes, ...definition };
}

export const bodyLimits = {
  /** Ordinary bodies. */
  smallBytes: 64 * 1024,
  /** `/list` and definitions of collections, indexes, views and queries. */
  definitionBytes: 512 * 1024,
  skillsBytes: 256 * 1024,
  /** `/store`, batch, validate. */
  documentsBytes: 5 * 1024 * 1024,
} as const;
