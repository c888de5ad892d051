import { createSecretKey, type KeyObject } from 'node:crypto';
import type { ChannelCredentials, ServerCredentials } from '@grpc/grpc-js';
import { wrongConfig, type ConfigError } from '../config';
import { signPermit, type TransferPermit } from './transfer-permit';
import type { Logger } from '../logger';
import type { PemFiles } from './pem-files';
import { readSecret } from './setting-file';
import { createEventSigner, createEventVerifier, type EventSigner, type EventVerifier } from './event-signature';
import { createGuard, type Guard } from './guard';
import { callersOf, isServiceName, type ServiceName } from './services';
import type { TrustSettings } from './settings';
import { channelCredentials, readTls, serverCredentials, type Tls } from './tls';
import { callKey, secretOf, signToken } from './token';

/** The means by which a service calls other services and authenticates their calls. */
export interface Trust {
  /** Throws a ConfigError when this service has no secret to sign with. */
  towards(callee: ServiceName): CallCredentials;
  /**
   * The guard and credentials of a service that listens. Throws a ConfigError when the keys of its callers or its
   * certificate are missing.
   */
  server(): ServerTrust;
  /** The signer of the events that this service publishes. */
  signer: EventSigner;
  /** The verifier of the events of another service. Throws a ConfigError when this service has no secret. */
  verifier(publisher: ServiceName): EventVerifier;
}

export interface CallCredentials {
  channel: ChannelCredentials;
  /** The TLS files for blob transfers; undefined without TLS. */
  tls: PemFiles | undefined;
  /** A token for one call: `method` is `/package.Service/Method`, `app` may be empty. */
  token(method: string, app: string): string;
  /** The signed text of a permit for one blob transfer. */
  permit(permit: TransferPermit): string;
}

export interface ServerTrust {
  guard: Guard;
  credentials: ServerCredentials;
  /** The TLS of blob transfers; undefined without TLS. */
  tls: Tls | undefined;
}

/**
 * Reads the settings: either one INTERNAL_SECRET that all services share, or a SERVICE_SECRET of its own and the keys
 * of TRUSTED_CALLERS. A process whose services call each other directly needs neither until one of them listens. Throws
 * a ConfigError, which never contains a value.
 */
export function openTrust(
  service: ServiceName,
  settings: TrustSettings,
  log: Logger,
  options: { tlsCheckEveryMs?: number } = {},
): Trust {
  const internalSecret = secretIn(settings, 'INTERNAL_SECRET');
  const ownSecret = secretIn(settings, 'SERVICE_SECRET');
  const trustedCallers = readSecret(settings, 'TRUSTED_CALLERS');
  if (internalSecret !== undefined && (ownSecret ?? trustedCallers) !== undefined)
    throw wrong('INTERNAL_SECRET', 'is one secret for all: it does not go with SERVICE_SECRET or TRUSTED_CALLERS');
  const secret = internalSecret === undefined ? ownSecret : secretOf(internalSecret, service);
  const keys = internalSecret === undefined ? parseCallers(trustedCallers) : keysFrom(internalSecret, service);
  const tls = readTls(settings, log, options.tlsCheckEveryMs);
  let served: ServerTrust | undefined;
  const callKeyFor = (callee: ServiceName): KeyObject => {
    if (secret === undefined) throw wrong('SERVICE_SECRET', 'it or INTERNAL_SECRET is needed to call other services');
    return callKey(secret, service, callee);
  };
  const callerKeys = (): Keys => {
    if (!keys) throw wrong('TRUSTED_CALLERS', 'it or INTERNAL_SECRET is needed where other services call');
    return keys;
  };
  return {
    towards: (audience) => {
      const key = callKeyFor(audience);
      return {
        channel: channelCredentials(tls?.files),
        tls: tls?.files,
        token: (method, app) => signToken(key, { caller: service, audience, app, method }),
        permit: (permit) => signPermit(key, permit),
      };
    },
    server: () => {
      const callers = callerKeys();
      if (tls && !tls.files.hasCertificate) throw wrong('TLS_CERT_FILE', 'is needed where other services call');
      served ??= {
        guard: createGuard(service, callers, log),
        credentials: serverCredentials(tls),
        tls,
      };
      return served;
    },
    signer: createEventSigner((reader) => callerKeys().get(reader.split('-')[0] as ServiceName) ?? []),
    verifier: (publisher) => createEventVerifier(callKeyFor(publisher)),
  };
}

type Keys = ReadonlyMap<ServiceName, readonly KeyObject[]>;

function keysFrom(internalSecret: string, callee: ServiceName): Keys {
  return new Map(
    callersOf[callee].map((caller) => [caller, [callKey(secretOf(internalSecret, caller), caller, callee)]]),
  );
}

/** A caller may be listed twice while its secret is being rotated. */
function parseCallers(text: string | undefined): Keys | undefined {
  if (text === undefined) return undefined;
  const keys = new Map<ServiceName, KeyObject[]>();
  for (const entry of text.split(/[\s,]+/).filter((part) => part !== '')) {
    const [name = '', key = ''] = entry.split(':');
    if (!isServiceName(name) || !/^[0-9a-f]{64}$/.test(key))
      throw wrong('TRUSTED_CALLERS', 'name:key is expected, with commas between, the key as 64 hexadecimal digits');
    keys.set(name, [...(keys.get(name) ?? []), createSecretKey(Buffer.from(key, 'hex'))]);
  }
  return keys;
}

type Setting = 'INTERNAL_SECRET' | 'SERVICE_SECRET' | 'TRUSTED_CALLERS';

function secretIn(settings: TrustSettings, name: Setting): string | undefined {
  const secret = readSecret(settings, name);
  if (secret !== undefined && secret.length < 32) throw wrong(name, 'at least 32 characters are needed');
  return secret;
}

const wrong = (name: string, why: string): ConfigError => wrongConfig([[name, why]]);
