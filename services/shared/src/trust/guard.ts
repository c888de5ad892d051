import type { KeyObject } from 'node:crypto';
import { ServiceError } from '../errors';
import { verifyPermit, type TransferPermit } from './transfer-permit';
import type { Logger } from '../logger';
import { counters } from '../telemetry/metrics';
import type { ServiceName } from './services';
import { clockSkewMs, readToken, tokenLifetimeMs, type Claims } from './token';

/** The reason of every refusal between services; clients of the HTTP interface do not see it, see `asOurFault`. */
export const callRefused = 'CALL_REFUSED';

const refusals = [
  'no token',
  'malformed token',
  'token for another service',
  'unknown caller',
  'wrong signature',
  'expired token',
  'token from the future',
  'token for another app',
  'not allowed',
  'no valid permit',
] as const;

/** Why a call was refused, for the log and the metrics; the caller learns only UNAUTHENTICATED or PERMISSION_DENIED. */
export type Refusal = (typeof refusals)[number];

const refused = counters({
  name: 'granary_calls_refused_total',
  help: 'Calls between services that were refused.',
  labels: ['service', 'reason'],
});

/** The interval in which the same refusal is logged at most once, with the number since the last line. */
const loggedEveryMs = 10_000;

/** Authenticates the callers of a service. Logs and counts what it refuses. */
export interface Guard {
  /** The claims of a token with a valid signature for this method, audience and time. Throws UNAUTHENTICATED. */
  authenticate(token: string | undefined, method: string): Claims;
  /** Logs and counts a refusal: PERMISSION_DENIED for `not allowed`, UNAUTHENTICATED for all others. */
  refuse(why: Refusal, method: string, caller?: ServiceName): ServiceError;
  /** The claims of a permit of the gateway, see transfer-permit.ts. Throws UNAUTHENTICATED. */
  permit(text: string | undefined): TransferPermit;
  /** How many calls were refused since the start, by reason. */
  refusals(): ReadonlyMap<Refusal, number>;
}

/** `keys` has the keys of each caller: several while its secret is being rotated. */
export function createGuard(
  service: ServiceName,
  keys: ReadonlyMap<ServiceName, readonly KeyObject[]>,
  log: Logger,
  now: () => number = Date.now,
): Guard {
  const counts = new Map<Refusal, number>();
  // Each series exists from the start, so that the first refusal of a kind is visible as an increase.
  for (const why of refusals) refused.with(service, why);
  // Bounded: the keys consist of names of services, existing methods and refusals.
  const logged = new Map<string, { atMs: number; since: number }>();

  function refuse(why: Refusal, method: string, caller?: ServiceName): ServiceError {
    counts.set(why, (counts.get(why) ?? 0) + 1);
    refused.with(service, why).inc();
    const key = `${why} ${method} ${caller}`;
    const before = logged.get(key);
    if (before && now() - before.atMs < loggedEveryMs) before.since++;
    else {
      log.warn({ caller, method, why, times: 1 + (before?.since ?? 0) }, 'a call was refused');
      logged.set(key, { atMs: now(), since: 0 });
    }
    return why === 'not allowed'
      ? new ServiceError('PERMISSION_DENIED', callRefused, 'The caller may not do this')
      : new ServiceError('UNAUTHENTICATED', callRefused, 'The caller is not known');
  }

  return {
    authenticate: (text, method) => {
      if (text === undefined || text === '') throw refuse('no token', method);
      const token = readToken(text);
      if (!token) throw refuse('malformed token', method);
      const { caller, audience, expiresAtMs } = token.claims;
      const callerKeys = keys.get(caller);
      if (!callerKeys) throw refuse('unknown caller', method, caller);
      if (audience !== service) throw refuse('token for another service', method, caller);
      if (!token.isSignedBy(callerKeys, method)) throw refuse('wrong signature', method, caller);
      if (expiresAtMs <= now()) throw refuse('expired token', method, caller);
      if (expiresAtMs > now() + tokenLifetimeMs + clockSkewMs) throw refuse('token from the future', method, caller);
      return token.claims;
    },
    refuse,
    permit: (text) => {
      const permit = verifyPermit(keys.get('gateway') ?? [], text, now());
      if (!permit) throw refuse('no valid permit', '/blob');
      return permit;
    },
    refusals: () => counts,
  };
}

/** A refusal between services is INTERNAL to the client whose request caused the call. */
export function asOurFault(error: ServiceError): ServiceError {
  if (error.reason !== callRefused) return error;
  return new ServiceError('INTERNAL', 'INTERNAL', 'Internal server error', { cause: error });
}
