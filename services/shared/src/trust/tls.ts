import { ChannelCredentials, experimental, ServerCredentials } from '@grpc/grpc-js';
import { wrongConfig } from '../config';
import type { Logger } from '../logger';
import { PemFiles, type Pem } from './pem-files';
import type { TrustSettings } from './settings';

/** The TLS of a process. */
export interface Tls {
  files: PemFiles;
  /** Whether callers need a certificate. */
  verifiesClients: boolean;
}

/** Undefined without TLS. Throws a ConfigError for what is missing or cannot be read. */
export function readTls(settings: TrustSettings, log: Logger, checkEveryMs?: number): Tls | undefined {
  const { TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE, TLS_VERIFY_CLIENTS: verify = false } = settings;
  if (!TLS_CA_FILE && !TLS_CERT_FILE && !TLS_KEY_FILE) {
    if (!verify) return undefined;
    throw wrongConfig([['TLS_VERIFY_CLIENTS', 'needs TLS_CA_FILE and the other files']]);
  }
  const missing: string[] = [];
  if (!TLS_CA_FILE) missing.push('TLS_CA_FILE');
  if (!TLS_CERT_FILE && (TLS_KEY_FILE || verify)) missing.push('TLS_CERT_FILE');
  if (!TLS_KEY_FILE && (TLS_CERT_FILE || verify)) missing.push('TLS_KEY_FILE');
  if (missing.length > 0) throw wrongConfig(missing.map((name) => [name, 'is missing'] as const));
  const paths = {
    ca: ['TLS_CA_FILE', TLS_CA_FILE!] as const,
    ...(TLS_CERT_FILE && {
      cert: ['TLS_CERT_FILE', TLS_CERT_FILE] as const,
      key: ['TLS_KEY_FILE', TLS_KEY_FILE!] as const,
    }),
  };
  return { files: new PemFiles(paths, log, checkEveryMs), verifiesClients: verify };
}

/** The options of a server of `node:tls`. The part from its files can be changed by `setSecureContext`. */
export function serverOptions({ files, verifiesClients }: Tls): Pem & {
  requestCert: boolean;
  rejectUnauthorized: boolean;
} {
  return { ...files.latest, requestCert: verifiesClients, rejectUnauthorized: verifiesClients };
}

export function channelCredentials(files: PemFiles | undefined): ChannelCredentials {
  if (!files) return ChannelCredentials.createInsecure();
  const provider = new FilesProvider(files);
  return experimental.createCertificateProviderChannelCredentials(provider, files.hasCertificate ? provider : null);
}

export function serverCredentials(tls: Tls | undefined): ServerCredentials {
  if (!tls) return ServerCredentials.createInsecure();
  const provider = new FilesProvider(tls.files);
  // grpc-js 1.14 has the names of the first two parameters the wrong way round.
  return experimental.createCertificateProviderServerCredentials(
    provider,
    tls.verifiesClients ? provider : null,
    tls.verifiesClients,
  );
}

/** Gives gRPC what the files hold, then what they hold after each change. */
class FilesProvider implements experimental.CertificateProvider {
  private readonly unwatch = new Map<unknown, () => void>();

  constructor(private readonly files: PemFiles) {}

  addCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.add(listener, ({ ca }) => listener(ca ? { caCertificate: ca } : null));
  }

  addIdentityCertificateListener(listener: experimental.IdentityCertificateUpdateListener): void {
    this.add(listener, ({ cert, key }) => listener(cert && key ? { certificate: cert, privateKey: key } : null));
  }

  removeCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.remove(listener);
  }

  removeIdentityCertificateListener(listener: experimental.IdentityCertificateUpdateListener): void {
    this.remove(listener);
  }

  private add(listener: unknown, update: (pem: Pem) => void): void {
    this.unwatch.set(listener, this.files.watch(update));
    // gRPC can take it only after the call that adds the listener.
    process.nextTick(() => {
      if (this.unwatch.has(listener)) update(this.files.current());
    });
  }

  private remove(listener: unknown): void {
    this.unwatch.get(listener)?.();
    this.unwatch.delete(listener);
  }
}
