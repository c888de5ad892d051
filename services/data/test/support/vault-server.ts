import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';
import { createServer as createPlainServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Certificate } from '@granary/testing/certificates';

interface TransitKey {
  type: string;
  derived: boolean;
  versions: Buffer[];
  minDecryptionVersion: number;
}

interface Asked {
  plaintext?: string;
  ciphertext?: string;
  associated_data?: string;
  context?: string;
}

class Refused extends Error {
  constructor(
    readonly status: number,
    reason: string,
  ) {
    super(reason);
  }
}

/**
 * Stands in for HashiCorp Vault with a Transit secrets engine at `transit`: reads keys, encrypts, decrypts and rewraps
 * by the versions of AES-256-GCM keys, with the statuses and reasons of Vault.
 */
export class VaultServer {
  readonly keys = new Map<string, TransitKey>();
  token = 'hvs.first';
  namespace: string | undefined;
  isSealed = false;
  /** As Vault did before 1.13. */
  ignoresAssociatedData = false;
  /** Paths that the policy of the token does not allow. */
  readonly denied = new Set<string>();
  /** Answers of so many requests to come: 503. */
  failing = 0;
  /** Requests to come that are answered before all others fail; undefined: all. */
  remaining: number | undefined;
  /** Nothing is answered. */
  isSilent = false;
  readonly requests: string[] = [];
  private readonly server;

  constructor(private readonly certificate?: Certificate) {
    const handle = (request: IncomingMessage, response: ServerResponse) => void this.handle(request, response);
    this.server = certificate ? createTlsServer({ ...certificate }, handle) : createPlainServer(handle);
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    const { port } = this.server.address() as AddressInfo;
    return `${this.certificate ? 'https' : 'http'}://127.0.0.1:${port}`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  addKey(name: string, { type = 'aes256-gcm96', derived = false } = {}): void {
    this.keys.set(name, { type, derived, versions: [randomBytes(32)], minDecryptionVersion: 1 });
  }

  rotate(name: string): void {
    this.keys.get(name)!.versions.push(randomBytes(32));
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = '';
    for await (const chunk of request.setEncoding('utf8') as AsyncIterable<string>) body += chunk;
    this.requests.push(`${request.method} ${request.url}`);
    if (this.isSilent) return;
    const answer = (status: number, content: object) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(content));
    try {
      answer(200, { request_id: 'x', data: this.answerTo(request, body) });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      answer(error.status, { errors: error.message === '' ? [] : [error.message] });
    }
  }

  private answerTo({ method, url, headers }: IncomingMessage, body: string): object {
    if (this.isSealed) throw new Refused(503, 'Vault is sealed');
    if (this.failing > 0) {
      this.failing -= 1;
      throw new Refused(503, '');
    }
    if (this.remaining !== undefined && --this.remaining < 0) throw new Refused(500, 'internal error');
    if (headers['x-vault-token'] !== this.token) throw new Refused(403, 'permission denied');
    if (headers['x-vault-namespace'] !== this.namespace) throw new Refused(403, 'permission denied');
    const [, operation, name] = /^\/v1\/transit\/(keys|encrypt|decrypt|rewrap)\/([\w.-]+)$/.exec(url ?? '') ?? [];
    if (operation === undefined || name === undefined) throw new Refused(404, `no handler for route ${url}`);
    if (this.denied.has(operation)) throw new Refused(403, '1 error occurred:\n\t* permission denied\n\n');
    const key = this.keys.get(name);
    if (operation === 'keys') return this.describe(method, key);
    if (method !== 'POST') throw new Refused(405, '');
    if (!key) throw new Refused(400, 'encryption key not found');
    const asked = JSON.parse(body) as Asked;
    if (operation === 'encrypt') return { ciphertext: this.encrypt(key, asked), key_version: key.versions.length };
    if (operation === 'decrypt') return { plaintext: this.decrypt(key, asked) };
    // Vault's rewrap knows no associated data.
    const { ciphertext, context } = asked;
    const plain = { ...(ciphertext !== undefined && { ciphertext }), ...(context !== undefined && { context }) };
    return { ciphertext: this.encrypt(key, { ...asked, plaintext: this.decrypt(key, plain) }) };
  }

  private describe(method: string | undefined, key: TransitKey | undefined): object {
    if (method !== 'GET' || !key) throw new Refused(404, '');
    const { type, derived, versions, minDecryptionVersion } = key;
    return { type, derived, latest_version: versions.length, min_decryption_version: minDecryptionVersion };
  }

  private keyOf({ derived, versions }: TransitKey, version: number, { context }: Asked): Buffer {
    const key = versions[version - 1]!;
    if (!derived) return key;
    if (context === undefined)
      throw new Refused(400, "missing 'context' for key derivation; the key was created using a derived key");
    return createHmac('sha256', key).update(Buffer.from(context, 'base64')).digest();
  }

  private associated({ associated_data: data }: Asked): Buffer {
    return this.ignoresAssociatedData ? Buffer.alloc(0) : Buffer.from(data ?? '', 'base64');
  }

  private encrypt(key: TransitKey, asked: Asked): string {
    const version = key.versions.length;
    const nonce = randomBytes(12);
    const cipher = createCipheriv('aes-256-gcm', this.keyOf(key, version, asked), nonce).setAAD(this.associated(asked));
    const plain = Buffer.from(asked.plaintext ?? '', 'base64');
    const bytes = Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
    return `vault:v${version}:${bytes.toString('base64')}`;
  }

  private decrypt(key: TransitKey, asked: Asked): string {
    const [, number, text] = /^vault:v(\d+):(.+)$/.exec(asked.ciphertext ?? '') ?? [];
    const version = Number(number);
    if (text === undefined || !(version >= 1 && version <= key.versions.length)) {
      throw new Refused(400, 'invalid ciphertext: no prefix');
    }
    if (version < key.minDecryptionVersion) {
      throw new Refused(400, 'ciphertext or signature version is disallowed by policy (too old)');
    }
    const bytes = Buffer.from(text, 'base64');
    const decipher = createDecipheriv('aes-256-gcm', this.keyOf(key, version, asked), bytes.subarray(0, 12));
    decipher.setAAD(this.associated(asked)).setAuthTag(bytes.subarray(-16));
    try {
      return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()]).toString('base64');
    } catch {
      throw new Refused(400, 'cipher: message authentication failed');
    }
  }
}
