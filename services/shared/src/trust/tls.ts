import { ChannelCredentials, ServerCredentials } from '@grpc/grpc-js';
import { ConfigError } from '../config';
import { readSetting } from './setting-file';
import type { TrustSettings } from './settings';

/** The TLS options of a process, as `node:tls` names them. */
export interface Tls {
  /** For outgoing connections. */
  client: { ca: Buffer; cert?: Buffer; key?: Buffer };
  /** For incoming connections; absent where a process has no certificate. */
  server?: { ca: Buffer; cert: Buffer; key: Buffer; requestCert: boolean; rejectUnauthorized: boolean };
}

/** Reads the files; undefined without TLS. Throws a ConfigError for what is missing or cannot be read. */
export function readTls(settings: TrustSettings): Tls | undefined {
  const { TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE, TLS_VERIFY_CLIENTS: verify = false } = settings;
  if (!TLS_CA_FILE && !TLS_CERT_FILE && !TLS_KEY_FILE) {
    if (!verify) return undefined;
    throw new ConfigError('The configuration is wrong:\n  TLS_VERIFY_CLIENTS: needs TLS_CA_FILE and the other files');
  }
  const missing: string[] = [];
  if (!TLS_CA_FILE) missing.push('TLS_CA_FILE');
  if (!TLS_CERT_FILE && (TLS_KEY_FILE || verify)) missing.push('TLS_CERT_FILE');
  if (!TLS_KEY_FILE && (TLS_CERT_FILE || verify)) missing.push('TLS_KEY_FILE');
  if (missing.length > 0)
    throw new ConfigError(`The configuration is wrong:\n${missing.map((name) => `  ${name}: is missing`).join('\n')}`);
  const ca = readSetting('TLS_CA_FILE', TLS_CA_FILE!);
  if (!TLS_CERT_FILE) return { client: { ca } };
  const own = { cert: readSetting('TLS_CERT_FILE', TLS_CERT_FILE), key: readSetting('TLS_KEY_FILE', TLS_KEY_FILE!) };
  return {
    client: { ca, ...own },
    server: { ca, ...own, requestCert: verify, rejectUnauthorized: verify },
  };
}

export function channelCredentials(client: Tls['client'] | undefined): ChannelCredentials {
  if (!client) return ChannelCredentials.createInsecure();
  return ChannelCredentials.createSsl(client.ca, client.key ?? null, client.cert ?? null);
}

export function serverCredentials(server: Tls['server']): ServerCredentials {
  if (!server) return ServerCredentials.createInsecure();
  return ServerCredentials.createSsl(
    server.ca,
    [{ cert_chain: server.cert, private_key: server.key }],
    server.requestCert,
  );
}
