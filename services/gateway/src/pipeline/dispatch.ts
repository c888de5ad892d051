import type { BudgetLease } from '@granary/shared/concurrency/keyed-budget';
import { Router, type Request, type RequestHandler, type Response } from 'express';
import { notFound } from '@granary/shared/errors';
import type { Call } from '@granary/shared/rpc/types';
import { readJson, toPlain, type JsonValue } from '@granary/shared/json/value';
import { isAppNotFound } from '../admission/known-apps';
import { clientKeys, type ClientKeys } from '../admission/client-budget';
import { authenticate, isOperator, type Caller } from './auth';
import { clientGone, continueIfExpected, hasBody, mediaType, readBody } from '../http/body';
import { exchangeOf, type Exchange } from './request-context';
import type { Gate } from '../admission/concurrency-limiter';
import { answerOptions, send, setCommonHeaders } from './middleware';
import { malformedJson, unauthenticated, unsupportedMediaType } from '../errors/problem';
import { parseQuery } from '../http/query-string';
import { pathParameters, type PathParameter } from './path-parameters';
import { type Body, type Context, type Query, type Route, type RouteRequest } from './route';
import type { Share } from '../admission/fair-share-limiter';
import { validate } from '../validation/validate';
import { verifyWalletSignature } from './wallet-signature';

/** Depth of any JSON body. */
const bodyDepthMax = 64;

/** The paths of the table in Express's spelling, each with its routes by method. */
export function routesByPath(routes: readonly Route[]): Map<string, { paths: string[]; byMethod: Map<string, Route> }> {
  const found = new Map<string, { paths: string[]; byMethod: Map<string, Route> }>();
  for (const route of routes) {
    const path = expressPath(route.path);
    const entry = found.get(path) ?? { paths: route.prefixes.map((prefix) => prefix + path), byMethod: new Map() };
    if (entry.byMethod.has(route.method)) throw new Error(`${route.method} ${route.path} is in the table twice`);
    entry.byMethod.set(route.method, route);
    found.set(path, entry);
  }
  return found;
}

export function expressPath(path: string): string {
  return path.replace(/\{(\w+)\}/g, ':$1');
}

/** A router with everything in the table; each path answers each method, if only to say that it is not allowed. */
export function createRouter(context: Context, routes: readonly Route[]): Router {
  const router = Router({ caseSensitive: true });
  for (const { paths, byMethod } of routesByPath(routes).values()) router.all(paths, dispatcher(context, byMethod));
  return router;
}

function dispatcher(context: Context, byMethod: ReadonlyMap<string, Route>): RequestHandler {
  const allowed = [...byMethod.keys()].flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
  allowed.push('OPTIONS');
  return (request, response, next) => {
    if (request.method === 'OPTIONS') return answerOptions(response, allowed);
    const route = byMethod.get(request.method === 'HEAD' ? 'GET' : request.method);
    if (route) {
      serve(context, route, request, response).catch(next);
      return;
    }
    // A parameter in the place of a literal step may stand for it: a view can be called `sql`.
    const exchange = exchangeOf(response);
    exchange.allowed ??= new Set();
    for (const method of allowed) exchange.allowed.add(method);
    next();
  };
}

/**
 * Who → what → do: authentication comes before everything that the request says, and a request is worked on only when
 * the whole of it is there.
 */
async function serve(context: Context, route: Route, request: Request, response: Response): Promise<void> {
  const exchange = exchangeOf(response);
  exchange.route = route.path;
  const path = request.params as Record<string, string>;
  const address = context.addressOf(request);

  const found = callerOf(context, route, request, path, newCallOf(context, exchange), address);
  // To wait for nothing would still cost a turn of the queue of promises, here and below.
  const caller = found instanceof Promise ? await found : found;
  exchange.isPrivate = caller.kind !== 'anonymous';
  exchange.appId = path['app_id'] ?? (caller.kind === 'app' ? caller.appId : undefined);
  checkPath(path);
  const query = queryOf(route.query, queryText(request));
  const checking = route.urgent ? undefined : checkApp(context, caller, exchange, address);
  if (checking) await checking;
  const isStream = route.body?.kind === 'stream';
  const { body, tree, release } =
    route.body && route.body.kind !== 'stream'
      ? await bodyOf(context, route, route.body, request, response, clientKeys(exchange.appId, address))
      : noBody;

  let gate: Gate | undefined;
  let share: Share | undefined;
  let reserved: BudgetLease | undefined;
  let answerBytes = 0;
  let isHandled = false;
  try {
    const entrance = gateOf(context, route);
    if (entrance && !entrance.tryEnter()) await entrance.enter();
    gate = entrance;
    const entered = sharedBy(route, exchange) ? context.shares.enter(exchange.appId!) : undefined;
    share = entered instanceof Promise ? await entered : entered;
    if (share) reserved = context.answers.reserve(share.expectedAnswerBytes, exchange.appId!, address);
    if (response.destroyed) throw clientGone();
    if (isStream) {
      continueIfExpected(request, response);
      setCommonHeaders(response);
    }
    // Time begins when the whole request is there.
    const call = newCallOf(context, exchange);
    const served = new ServedRequest(call, caller, path, query, body, tree, request, response, route.path);
    const answer = await route.handle(context, served);
    isHandled = true;
    answerBytes = answer?.body?.length ?? 0;
    reserved?.release();
    // The answer may take the memory of the body.
    release?.();
    if (answer && !response.destroyed) send(request, response, answer, context, address);
  } catch (error) {
    if (exchange.appId !== undefined && isAppNotFound(error)) context.apps.delete(exchange.appId);
    // A change that was made must not be answered as refused: its client would make it again.
    if (isHandled && mayNotRepeat(route)) response.destroy();
    throw error;
  } finally {
    reserved?.release();
    share?.leave(answerBytes);
    gate?.leave();
    release?.();
  }
}

/** Whether a request changes something more each time it is sent. */
const mayNotRepeat = ({ headers }: Route): boolean => headers?.['Idempotency-Key'] !== undefined;

/**
 * Waits for the look-up of an app that is not known to exist, so that requests about apps that do not exist cost those
 * that do nothing. Rejects with APP_NOT_FOUND or OVERLOADED.
 */
function checkApp(
  { apps, config }: Context,
  caller: Caller,
  { appId, requestId, gone }: Exchange,
  address: string,
): Promise<void> | undefined {
  if (appId === undefined || caller.kind === 'operator') return undefined;
  if (caller.kind === 'app') {
    apps.add(caller.appId);
    if (caller.appId === appId) return undefined;
  }
  if (apps.has(appId)) return undefined;
  return apps.find(appId, address, { requestId, deadlineMs: Date.now() + config.REQUEST_TIMEOUT_MS, signal: gone });
}

/** Whether a request is one of those of which each app has its share: not what is urgent, and not bytes of blobs. */
function sharedBy(route: Route, { appId }: Exchange): boolean {
  return appId !== undefined && !route.urgent && route.body?.kind !== 'stream';
}

/** Transfers of blobs have places of their own: they are long, and must not hold up the others. */
function gateOf(context: Context, route: Route): Gate | undefined {
  return route.urgent || route.body?.kind === 'stream' ? undefined : context.gate;
}

function newCallOf(context: Context, { requestId, gone, span }: Exchange): Call {
  const deadlineMs = Date.now() + context.config.REQUEST_TIMEOUT_MS;
  return { requestId, deadlineMs, signal: gone, trace: span?.traceparent };
}

class ServedRequest implements RouteRequest {
  constructor(
    readonly call: Call,
    readonly caller: Caller,
    readonly path: Record<string, string>,
    readonly query: unknown,
    readonly body: unknown,
    readonly tree: JsonValue,
    readonly incoming: Request,
    readonly outgoing: Response,
    private readonly template: string,
  ) {}

  /** Made when it is asked for, which few routes do. */
  get canonicalPath(): string {
    return this.template.replace(/\{(\w+)\}/g, (_, name: string) => this.path[name]!);
  }
}

function callerOf(
  context: Context,
  { auth }: Route,
  request: Request,
  path: Record<string, string>,
  call: Call,
  clientAddress: string,
): Caller | Promise<Caller> {
  if (auth.kind !== 'wallet') {
    const { operatorKeyHash, keys } = context;
    return authenticate(auth, request.headers, path['app_id'], operatorKeyHash, keys, call, clientAddress);
  }
  if (isOperator(request.headers, context.operatorKeyHash)) return { kind: 'operator' };
  // Routes with this access only read, so there is no body to sign.
  const { method, originalUrl: target, headers } = request;
  const address = verifyWalletSignature({ method, target, headers, body: Buffer.alloc(0) });
  if (address !== path['user_address']) throw unauthenticated('The signature is not of the address in the path');
  return { kind: 'wallet', address };
}

function checkPath(path: Record<string, string>): void {
  for (const name in path) {
    const { pattern, reason, noun } = pathParameters[name as PathParameter];
    if (!pattern.test(path[name]!)) throw notFound(reason, `There is no such ${noun}`);
  }
}

function queryText(request: Request): string {
  const at = request.originalUrl.indexOf('?');
  return at < 0 ? '' : request.originalUrl.slice(at + 1);
}

function queryOf(query: Query | undefined, text: string): unknown {
  const parameters = text === '' ? new Map<string, string>() : parseQuery(text);
  if (!query) return undefined;
  if ('reserved' in query) return parameters;
  return validate(query, Object.fromEntries(parameters), 'query string');
}

/** A body that is read before its request is worked on. */
type WholeBody = Exclude<Body, { kind: 'stream' }>;

interface BodyOfRequest {
  body: unknown;
  tree: JsonValue;
  /** Gives back what it holds, once the request is done. */
  release?: () => void;
}

const noBody: BodyOfRequest = { body: undefined, tree: null };

async function bodyOf(
  context: Context,
  { contentTypes: expected }: Route,
  body: WholeBody,
  request: Request,
  response: Response,
  keys: ClientKeys,
): Promise<BodyOfRequest> {
  if (!hasBody(request)) return emptyBody(body, expected, request);
  const type = mediaType(request, expected);
  // A body without a type is taken for what the route expects.
  const isJson = type === undefined || type === 'application/json' || /^application\/[^;]+\+json$/.test(type);
  if (!(isJson && expected.includes('application/json')) && !(type !== undefined && expected.includes(type))) {
    throw unsupportedMediaType(expected);
  }
  const { bytes, release } = await readBody(request, response, {
    limitBytes: body.limitBytes,
    bodies: context.bodies,
    keys,
  });
  try {
    if (bytes.length === 0) return { ...emptyBody(body, expected, request), release };
    if (body.kind === 'raw') return { body: bytes, tree: null, release };
    const tree = readJson(bytes, { maxDepth: bodyDepthMax });
    return { body: validate(body.schema, toPlain(tree), 'body'), tree, release };
  } catch (error) {
    release();
    throw error;
  }
}

function emptyBody(body: WholeBody, expected: readonly string[], request: Request): BodyOfRequest {
  if (body.kind === 'json' && body.optional === true) {
    return { body: validate(body.schema, {}, 'body'), tree: new Map() };
  }
  if (body.kind === 'raw' && body.mayBeEmpty === true) {
    const type = mediaType(request, expected);
    if (type === undefined) throw unsupportedMediaType(expected);
    if (type !== 'application/json' && expected.includes(type)) return { body: Buffer.alloc(0), tree: null };
  }
  throw malformedJson('The body is empty');
}
