import { ServerInterceptingCall, type Metadata, type ServerInterceptor } from '@grpc/grpc-js';
import { callersByPath, type Access } from './access';
import type { Guard } from '../trust/guard';
import type { ServiceName } from '../trust/services';
import { appOf, tokenHeader, type Claims } from '../trust/token';
import type { ServiceError } from '../errors';
import { toStatus } from './status';
import type { ServiceDefinition } from './types';

/** Lets in the calls of those who may make them. */
export interface Authorization {
  /** Ends a unary call that may not be made before its request has been read. */
  interceptor: ServerInterceptor;
  /** Who makes a unary call that came past the interceptor. Throws when its token is for another app. */
  callerOf(metadata: Metadata, request: unknown, path: string): ServiceName;
  /** Who opens a stream or renews its token. Throws UNAUTHENTICATED. */
  streamClaims(token: string | undefined): Claims;
  mayCall(caller: ServiceName, path: string): boolean;
  /** Notes that a caller asked for what it may not have. */
  deny(caller: ServiceName | undefined, path: string): ServiceError;
  /** Notes that a caller has not renewed the token of its stream. */
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
  // Of the calls that came past the interceptor.
  const admitted = new WeakMap<Metadata, Claims>();

  const admit = (metadata: Metadata, path: string) => {
    const claims = guard.authenticate(tokenOf(metadata), path);
    if (!mayCall(claims.caller, path)) throw guard.refuse('not allowed', path, claims.caller);
    admitted.set(metadata, claims);
  };

  const interceptor: ServerInterceptor = ({ path }, call) => {
    // What travels on a stream has a way of its own, where nothing is added to each message.
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
      // It would take a change of the library to get here without the interceptor; then nobody gets in.
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
