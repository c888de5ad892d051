import type { ServiceError } from '../errors';
import type { Authorization } from '../rpc/authorization';
import type { ServiceName } from '../trust/services';

/** The caller at the other end of a stream, and the methods that it may call. */
export interface SessionCredentials<Method> {
  caller: ServiceName;
  methods: ReadonlyMap<string, Method>;
  isExpired(nowMs: number): boolean;
  /** Extends the session by another token of the same caller; an invalid one changes nothing. */
  renew(token: string): void;
  /** Both count and log the refusal of a call. */
  expired(): ServiceError;
  deny(path: string): ServiceError;
}

/** Authenticates a session by the token that its stream was opened with. Throws UNAUTHENTICATED. */
export function openSessionCredentials<Method>(
  authorization: Authorization,
  token: string | undefined,
  methods: ReadonlyMap<string, Method>,
): SessionCredentials<Method> {
  const { caller, ...first } = authorization.streamClaims(token);
  let { expiresAtMs } = first;
  return {
    caller,
    methods: new Map([...methods].filter(([path]) => authorization.mayCall(caller, path))),
    isExpired: (nowMs) => nowMs >= expiresAtMs,
    renew: (next) => {
      try {
        const claims = authorization.streamClaims(next);
        if (claims.caller === caller) ({ expiresAtMs } = claims);
      } catch {
        // The guard has logged it. Without a renewal the session expires.
      }
    },
    expired: () => authorization.expired(caller),
    deny: (path) => authorization.deny(caller, path),
  };
}
