import { ServerInterceptingCall, type Metadata, type ServerInterceptor } from '@grpc/grpc-js';
import { callersByPath, type Access } from './access';
import type { Guard } from '../trust/guard';
import type { ServiceName } from '../trust/services';
import { appOf, tokenHeader, type Claims } from '../trust/token';
import type { ServiceError } from '../errors';
import { toStatus } from './status';
import type { ServiceDefinition } from './types';

/** Authorizes calls from other services. */
export interface Authorization {
  /** Rejects unary calls that are not allowed before their request is read. */
  interceptor: ServerInterceptor;
  /** The caller of a unary call that has passed the interceptor. Throws when its token is for another app. */
  callerOf(metadata: Metadata, request: unknown, path: string): ServiceName;
  /** The claims of a token that opens or renews a stream. Throws UNAUTHENTICATED. */
  streamClaims(token: string | undefined): Claims;
  mayCall(caller: ServiceName, path: string): boolean;
  /** Logs and counts a call that is not allowed. */
  deny(caller: ServiceName | undefined, path: string): ServiceError;
  /** Logs and counts a call on a stream whose token has expired. */
  expired(caller: ServiceName): ServiceError;
}

/** `streamPath`: the method that carries other calls and authorizes each of them itself. */
export function createAuthorization(
  guard: Guard,
  implementations: ReadonlyArray<{ definition: ServiceDefinition; access?: Access }>,
  streamPath: string,
): Authorization {
  const callers = callersByPath(implementations);
  const mayCall = (caller: ServiceName, path: string) => callers.get(path)?.has(caller) ?? false;
  // The claims of calls that have passed the interceptor.
  const admitted = new WeakMap<Metadata, Claims>();

  const admit = (metadata: Metadata, path: string) => {
    const claims = guard.authenticate(tokenOf(metadata), path);
    if (!mayCall(claims.caller, path)) throw guard.refuse('not allowed', path, claims.caller);
    admitted.set(metadata, claims);
  };

  const interceptor: ServerInterceptor = ({ path }, call) => {
    // The multiplexer authorizes the calls on a stream itself; an interceptor would add work to each message.
    if (path === streamPath) return call as ServerInterceptingCall;
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, pass) => {
            try {
              admit(metadata, path);
            } catch (error) {
              return call.sendStatus(toStatus(error as ServiceError));
            }
            pass(metadata);
          },
        }),
    });
  };

  return {
    interceptor,
    callerOf: (metadata, request, path) => {
      const claims = admitted.get(metadata);
      // This is not reached unless grpc-js changes; then nobody is authenticated.
      if (!claims) return guard.authenticate(undefined, path).caller;
      if (claims.app !== appOf(request)) throw guard.refuse('token for another app', path, claims.caller);
      return claims.caller;
    },
    streamClaims: (token) => guard.authenticate(token, streamPath),
    mayCall,
    deny: (caller, path) => guard.refuse('not allowed', path, caller),
    expired: (caller) => guard.refuse('expired token', streamPath, caller),
  };
}

export function tokenOf(metadata: Metadata): string | undefined {
  const [token] = metadata.get(tokenHeader);
  return typeof token === 'string' ? token : undefined;
}
