import type { ServiceError } from '../errors';
import type { ServiceName } from '../trust/services';
import type { Authorization } from '../rpc/authorization';

/** Who is at the other end of a stream, and which of the methods it may call. */
export interface SessionCredentials<Method> {
  caller: ServiceName;
  methods: ReadonlyMap<string, Method>;
  isExpired(nowMs: number): boolean;
  /** With another token of the same caller; one that is not believed changes nothing. */
  renew(token: string): void;
  /** These note the refusal of a call. */
  expired(): ServiceError;
  deny(path: string): ServiceError;
}

/** From the token that a stream was opened with. Throws UNAUTHENTICATED. */
export function openSessionCredentials<Method>(
  admitted: Authorization,
  token: string | undefined,
  methods: ReadonlyMap<string, Method>,
): SessionCredentials<Method> {
  const { caller, ...first } = admitted.streamClaims(token);
  let { expiresAtMs } = first;
  return {
    caller,
    methods: new Map([...methods].filter(([path]) => admitted.mayCall(caller, path))),
    isExpired: (nowMs) => nowMs >= expiresAtMs,
    renew: (next) => {
      try {
        const claims = admitted.streamClaims(next);
        if (claims.caller === caller) ({ expiresAtMs } = claims);
      } catch {
        // It was noted. What it does not renew runs out by itself.
      }
    },
    expired: () => admitted.expired(caller),
    deny: (path) => admitted.deny(caller, path),
  };
}
