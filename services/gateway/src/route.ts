import type { Request, Response } from 'express';
import { z } from 'zod';
import type { Call } from '@granary/shared/grpc/types';
import type { JsonValue } from '@granary/shared/json/value';
import type { Logger } from '@granary/shared/logger';
import type { Answer } from './answer';
import type { Access, Caller, CallerOf, KeyLookup } from './auth';
import type { Budget } from './body';
import type { ByteHop } from './byte-hop';
import type { Clients } from './clients';
import type { Compression } from './compression';
import type { GatewayConfig } from './config';
import type { Gate } from './gate';
import type { AppShares } from './shares';
import type { Health } from './health';
import type { StaticAnswer } from './static-answer';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** What every request can reach. */
export interface Context {
  config: GatewayConfig;
  clients: Clients;
  /** Moves the bytes of blobs. */
  byteHop: ByteHop;
  log: Logger;
  keys: KeyLookup;
  operatorKeyHash: Buffer;
  budget: Budget;
  gate: Gate;
  streamGate: Gate;
  shares: AppShares;
  compression: Compression;
  /** How every service is, as of half a second ago at most. */
  health: (requestId: string) => Promise<Health>;
  /** True from the first moment of a stop. */
  isDraining: () => boolean;
  /** The published document, as it is sent. */
  openapi: StaticAnswer;
  /** The same for people. */
  docs: StaticAnswer;
}

const name = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$/;
const token = /^[A-Za-z0-9_-]{1,128}$/;

/** The names that stand in paths: what they may be, for example, and what is not found when they are not. */
export const pathParameters = {
  app_id: {
    pattern: /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/,
    example: 'demo',
    reason: 'APP_NOT_FOUND',
    noun: 'application',
  },
  collection: { pattern: name, example: 'notes', reason: 'COLLECTION_NOT_FOUND', noun: 'collection' },
  view_name: { pattern: name, example: 'by_stars', reason: 'VIEW_NOT_FOUND', noun: 'view' },
  query_name: { pattern: name, example: 'with_stars', reason: 'QUERY_NOT_FOUND', noun: 'query' },
  index_name: {
    pattern: /^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u,
    example: 'by_stars',
    reason: 'INDEX_NOT_FOUND',
    noun: 'index',
  },
  blob_id: { pattern: token, example: 'BLOB_ID', reason: 'BLOB_NOT_FOUND', noun: 'blob' },
  key_id: { pattern: token, example: 'KEY_ID', reason: 'KEY_NOT_FOUND', noun: 'key' },
  ticket_id: { pattern: token, example: 'TICKET_ID', reason: 'TASK_NOT_FOUND', noun: 'task' },
  document_id: { pattern: /^[^\0]{1,512}$/, example: 'first', reason: 'DOCUMENT_NOT_FOUND', noun: 'document' },
  height: { pattern: /^\d{1,16}$/, example: '1', reason: 'COMMIT_NOT_FOUND', noun: 'commit' },
  user_address: { pattern: /^[A-Za-z0-9]{1,128}$/, example: 'ADDRESS', reason: 'ADDRESS_NOT_FOUND', noun: 'address' },
} as const;
export type PathParameter = keyof typeof pathParameters;

type NamesIn<P extends string> = P extends `${string}{${infer Name}}${infer Rest}` ? Name | NamesIn<Rest> : never;

/** A body that is read as a whole, parsed strictly and checked by a schema; the handler gets the schema's output. */
export interface JsonBody<S extends z.ZodType = z.ZodType> {
  kind: 'json';
  schema: S;
  /** For the document, where the least that the schema demands would say little. */
  example?: unknown;
  limitBytes: number;
  /** True: no body is `{}`. */
  optional?: boolean;
}
/** A body that a service reads: passed on byte for byte. The schema only documents it. */
export interface RawBody {
  kind: 'raw';
  schema: z.ZodType;
  example?: unknown;
  contentTypes: readonly string[];
  limitBytes: number;
  /** True: an empty body of another type than JSON is a text without characters. */
  mayBeEmpty?: boolean;
}
/** A body that the handler takes from `incoming` as it comes; also for answers that it writes to `outgoing` itself. */
export interface StreamBody {
  kind: 'stream';
  /** By content type, for the document; empty for a route without a body. */
  schemas: Readonly<Record<string, z.ZodType>>;
}
export type Body = JsonBody | RawBody | StreamBody;

type BodyOf<B extends Body | undefined> =
  B extends JsonBody<infer S> ? z.output<S> : B extends RawBody ? Buffer : undefined;

/** `any`: every parameter of the query string goes to the handler, in a Map. */
export type Query = z.ZodObject | 'any';
type QueryOf<Q extends Query | undefined> = Q extends 'any'
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
  tree: JsonValue;
  /** The path without prefix and trailing slash: what idempotency keys are bound to. */
  canonicalPath: string;
  incoming: Request;
  outgoing: Response;
}

export interface ResponseDoc {
  description: string;
  schema?: z.ZodType;
  /** Default: application/json where there is a schema. */
  contentType?: string;
}

interface RouteDefinition<P extends string, A extends Access, Q extends Query | undefined, B extends Body | undefined> {
  method: Method;
  /** As documented, without prefix; `{name}` for a parameter of `pathParameters`. */
  path: P;
  /** What may stand before the path; the first is the documented one. */
  prefixes?: readonly string[];
  /** Name of the operation in the document. */
  id: string;
  summary: string;
  description?: string;
  tag: string;
  auth: A;
  query?: Q;
  /** Request headers that the handler reads, for the document: name → description. */
  headers?: Readonly<Record<string, string>>;
  body?: B;
  /** What may be answered; errors that every route can have are added. */
  responses: Readonly<Record<number, ResponseDoc>>;
  /** Answered whatever the load and while stopping. */
  urgent?: boolean;
  /** Resolves to nothing once it has written the answer to `outgoing` itself. */
  handle(
    context: Context,
    request: RouteRequest<NamesIn<P>, CallerOf<A>, QueryOf<Q>, BodyOf<B>>,
  ): Promise<Answer | undefined>;
}

/** One line of the table that both the Express routes and the OpenAPI document are made from. */
export type Route = Omit<
  RouteDefinition<string, Access, Query | undefined, Body | undefined>,
  'handle' | 'prefixes'
> & {
  prefixes: readonly string[];
  handle(context: Context, request: RouteRequest): Promise<Answer | undefined>;
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
  return { prefixes: defaultPrefixes, ...definition };
}

export const limits = {
  /** Ordinary bodies. */
  smallBytes: 64 * 1024,
  /** `/list` and definitions of collections, indexes, views and queries. */
  definitionBytes: 512 * 1024,
  skillsBytes: 256 * 1024,
  /** `/store`, batch, validate. */
  documentsBytes: 5 * 1024 * 1024,
} as const;

/** A whole number in a query string. */
export const wholeParameter = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(min).max(max));

export const flagParameter = z
  .enum(['true', 'false'])
  .transform((text) => text === 'true')
  .pipe(z.boolean());

/** `limit` and `offset` of a list. */
export const pageQuery = z.strictObject({
  limit: wholeParameter(1, 10_000).default(100),
  offset: wholeParameter(0, 1_000_000).default(0),
});
