import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { Logger } from '../logger';
import { readSetting } from './setting-file';

/** Certificates and a private key as PEM, named as `node:tls` does. */
export interface Pem {
  ca?: Buffer;
  cert?: Buffer;
  key?: Buffer;
}

/** The settings that name the files, and the paths. */
export type PemPaths = { readonly [K in keyof Pem]?: readonly [setting: string, path: string] };

const checkIntervalMs = 10_000;
const names = ['ca', 'cert', 'key'] as const;

/**
 * The PEM files of one end of TLS connections. They may be replaced while the process runs, as a certificate is before
 * it expires: new connections then use the new ones. Files that cannot be read or do not belong together change
 * nothing.
 */
export class PemFiles {
  private pem: Pem;
  private failures = 0;
  private timer: NodeJS.Timeout | undefined;
  private readonly listeners = new Set<(pem: Pem) => void>();

  /** Throws a ConfigError for a file that cannot be read. */
  constructor(
    private readonly paths: PemPaths,
    private readonly log: Logger,
    private readonly checkEveryMs = checkIntervalMs,
  ) {
    this.pem = this.read();
  }

  get hasCertificate(): boolean {
    return this.pem.cert !== undefined;
  }

  /** The contents of the files when they were last checked. */
  get latest(): Pem {
    return this.pem;
  }

  /** The contents of the files now; for a connection that is about to be opened. */
  current(): Pem {
    this.check();
    return this.pem;
  }

  /** Calls `listener` after each change, noticed within 10 s, until the returned function is called. */
  watch(listener: (pem: Pem) => void): () => void {
    this.listeners.add(listener);
    this.timer ??= setInterval(() => this.check(), this.checkEveryMs).unref();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size > 0) return;
      clearInterval(this.timer);
      this.timer = undefined;
    };
  }

  private read(): Pem {
    const pem: Pem = {};
    for (const name of names) {
      const file = this.paths[name];
      if (file) pem[name] = readSetting(...file);
    }
    return pem;
  }

  private check(): void {
    try {
      const read = this.read();
      const isRenewed = !isSame(read, this.pem);
      if (isRenewed) assertUsable(read);
      this.failures = 0;
      if (!isRenewed) return;
      this.pem = read;
      this.log.info({ files: this.filePaths() }, 'TLS files were renewed');
    } catch (error) {
      // The files of a certificate and its key may be replaced one after the other.
      if (++this.failures === 2) {
        this.log.warn({ err: error, files: this.filePaths() }, 'TLS files cannot be used, the last ones stay in use');
      }
      return;
    }
    for (const listener of this.listeners) listener(this.pem);
  }

  private filePaths(): string[] {
    return names.flatMap((name) => this.paths[name]?.[1] ?? []);
  }
}

const empty = Buffer.alloc(0);

function isSame(one: Pem, other: Pem): boolean {
  return names.every((name) => (one[name] ?? empty).equals(other[name] ?? empty));
}

function assertUsable(pem: Pem): void {
  createSecureContext(pem);
  // createSecureContext ignores an authority that it cannot parse.
  if (pem.ca) new X509Certificate(pem.ca);
}
