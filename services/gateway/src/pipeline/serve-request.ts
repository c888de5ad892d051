import { randomUUID } from 'node:crypto';
import type { BudgetLease } from '@granary/shared/concurrency/keyed-budget';
import type { Semaphore } from '@granary/shared/concurrency/semaphore';
import type { Request, Response } from 'express';
import { notFound } from '@granary/shared/errors';
import type { Call } from '@granary/shared/rpc/types';
import { clientKeys } from '../admission/client-budget';
import type { AppSlot } from '../admission/fair-share-limiter';
import { isAppNotFound } from '../admission/known-apps';
import { clientDisconnected, continueIfExpected } from '../http/body';
import { parseQueryString } from '../http/query-string';
import { validate } from '../validation/validate';
import type { Caller } from './access';
import { authenticate, checkSignature, signatureOf } from './auth';
import type { GatewayContext } from './gateway-context';
import { pathParameters, type PathParameter } from './path-parameters';
import { noBody, readRequestBody, type BodySender } from './request-body';
import { requestContextOf, type RequestContext } from './request-context';
import type { Query, Route } from './route';
import { sendAnswer, setCommonHeaders } from './send-answer';

/**
 * Serves one request: (1) authentication, before anything else in the request is read; (2) path and query string; (3)
 * the app exists; (4) the body, read as a whole; (5) a slot of the process and one of the app's fair share; (6) the
 * handler; (7) the answer.
 */
export async function serveRequest(
  gateway: GatewayContext,
  route: Route,
  incoming: Request,
  outgoing: Response,
): Promise<void> {
  const context = requestContextOf(outgoing);
  context.route = route.path;
  const path = incoming.params as Record<string, string>;
  const clientAddress = gateway.addressOf(incoming);

  const call = newCallOf(gateway, context);
  const authenticated = authenticate(gateway, { route, request: incoming, path, call, clientAddress });
  // To await a value that is no promise would still cost a turn of the microtask queue, here and below.
  const caller = authenticated instanceof Promise ? await authenticated : authenticated;
  noteCaller(context, caller, path);
  checkPath(path);
  const query = queryOf(route.query, incoming);
  const appCheck = route.urgent ? undefined : checkAppExists(gateway, caller, context, clientAddress);
  if (appCheck) await appCheck;
  const sender = senderOf(caller, incoming, context, clientAddress);
  const { body, jsonTree, releaseBody } =
    route.body && route.body.kind !== 'stream'
      ? await readRequestBody(gateway, route, route.body, incoming, outgoing, sender)
      : noBody;

  const { appId } = context;
  let slots: Semaphore | undefined;
  let appSlot: AppSlot | undefined;
  let reserved: BudgetLease | undefined;
  /** Undefined until the route has handled the request. */
  let answerBytes: number | undefined;
  const leavePlace = () => {
    if (appSlot) gateway.fairShares.release(appSlot, answerBytes ?? 0);
    slots?.release();
    appSlot = slots = undefined;
  };
  const leaveMemory = () => {
    reserved?.release();
    releaseBody?.();
  };
  const leaveLimits = () => {
    leavePlace();
    leaveMemory();
  };
  try {
    if (isLimited(route, incoming)) {
      const waiting = gateway.slots.acquire();
      if (waiting) await waiting;
      slots = gateway.slots;
      if (appId !== undefined) {
        const acquired = gateway.fairShares.acquire(appId);
        appSlot = acquired instanceof Promise ? await acquired : acquired;
        reserved = gateway.answers.reserve(gateway.fairShares.expectedAnswerBytes(appSlot), appId, clientAddress);
      }
    }
    if (outgoing.destroyed) throw clientDisconnected();
    beginStreamedBody(route, incoming, outgoing);
    // Its deadline starts now that the whole request has arrived.
    const handling = newCallOf(gateway, context);
    const using = useSignature(gateway, route, caller, handling);
    if (using) await using;
    const parts = { caller, path, query, body, jsonTree, incoming, outgoing, leavePlace, leaveLimits };
    const answer = await route.handle(gateway, { call: handling, routePath: route.path, ...parts });
    answerBytes = answer?.body?.length ?? 0;
    // The answer may use it.
    leaveMemory();
    if (answer && !outgoing.destroyed) sendAnswer(incoming, outgoing, answer, gateway, clientAddress);
  } catch (error) {
    if (appId !== undefined && isAppNotFound(error)) gateway.apps.delete(appId);
    // A change that was made must not be answered with an error: the client would make it again.
    if (answerBytes !== undefined && isNotRepeatable(route)) outgoing.destroy();
    throw error;
  } finally {
    leaveLimits();
  }
}

function beginStreamedBody({ body }: Route, incoming: Request, outgoing: Response): void {
  if (body?.kind !== 'stream') return;
  continueIfExpected(incoming, outgoing);
  setCommonHeaders(outgoing);
}

/** Until its signature is checked, a request counts as one of a stranger. */
function senderOf(caller: Caller, incoming: Request, { appId }: RequestContext, clientAddress: string): BodySender {
  if (!signatureOf(caller)) return { keys: clientKeys(appId, clientAddress), check: undefined };
  return {
    keys: clientKeys(undefined, clientAddress),
    check: (bytes) => checkSignature(caller, incoming, bytes),
  };
}

/**
 * Uses the signature of a request that changes something: it does so once, whichever gateway it comes to. Undefined
 * where there is none. Rejects with SIGNATURE_USED.
 */
function useSignature(
  { clients }: GatewayContext,
  route: Route,
  caller: Caller,
  call: Call,
): Promise<unknown> | undefined {
  const signature = signatureOf(caller);
  if (!signature || !(isNotRepeatable(route) || isChangeOfWallet(route))) return undefined;
  const { bytes, timestamp } = signature;
  return clients.data.useSignature({ signature: bytes, signedAtSeconds: timestamp, useId: randomUUID() }, call);
}

function noteCaller(context: RequestContext, caller: Caller, path: Record<string, string>): void {
  context.isPrivate = caller.kind !== 'anonymous';
  context.appId = path['app_id'] ?? (caller.kind === 'app' ? caller.appId : undefined);
}

/** Transfers and feeds have limits of their own, because they take long; urgent routes have none. */
const isLimited = ({ urgent, body, isEndless }: Route, incoming: Request): boolean =>
  !urgent && body?.kind !== 'stream' && !isEndless?.(incoming);

/** Whether a request changes something each time that it is sent, unless it has an idempotency key. */
const isNotRepeatable = ({ headers, method }: Route): boolean =>
  method !== 'GET' && headers?.['Idempotency-Key'] !== undefined;

const isChangeOfWallet = ({ auth, method }: Route): boolean => auth.kind === 'wallet' && method !== 'GET';

function newCallOf({ config }: GatewayContext, { requestId, cancellation, span }: RequestContext): Call {
  const deadlineMs = Date.now() + config.REQUEST_TIMEOUT_MS;
  return { requestId, deadlineMs, signal: cancellation, trace: span?.traceparent };
}

/**
 * A look-up of an app that is not known to exist; undefined if none is needed. Requests about apps that do not exist
 * are refused before their bodies are read. Rejects with APP_NOT_FOUND or OVERLOADED.
 */
function checkAppExists(
  { apps, config }: GatewayContext,
  caller: Caller,
  { appId, requestId, cancellation }: RequestContext,
  clientAddress: string,
): Promise<void> | undefined {
  if (appId === undefined || caller.kind === 'operator') return undefined;
  if (caller.kind === 'app') {
    apps.add(caller.appId);
    if (caller.appId === appId) return undefined;
  }
  if (apps.has(appId)) return undefined;
  const deadlineMs = Date.now() + config.REQUEST_TIMEOUT_MS;
  return apps.find(appId, clientAddress, { requestId, deadlineMs, signal: cancellation });
}

/** Throws the 404 of the first parameter whose value cannot be a name. */
function checkPath(path: Record<string, string>): void {
  for (const name in path) {
    const { pattern, reason, noun } = pathParameters[name as PathParameter];
    if (!pattern.test(path[name]!)) throw notFound(reason, `There is no such ${noun}`);
  }
}

function queryOf(query: Query | undefined, { originalUrl }: Request): unknown {
  const position = originalUrl.indexOf('?');
  const text = position < 0 ? '' : originalUrl.slice(position + 1);
  const parameters = text === '' ? new Map<string, string>() : parseQueryString(text);
  if (!query) return undefined;
  if ('reserved' in query) return parameters;
  return validate(query, Object.fromEntries(parameters), 'query string');
}
