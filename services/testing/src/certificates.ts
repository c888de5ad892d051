import { generateKeyPairSync, randomBytes, sign, X509Certificate, type KeyObject } from 'node:crypto';

/** A certificate and its key, in PEM. */
export interface Certificate {
  cert: string;
  key: string;
}

export interface Authority {
  /** The certificate of the authority itself, which others are given so that they trust it. */
  cert: string;
  /**
   * Issues a certificate to a server on this machine, or to a caller; valid for `localhost` and 127.0.0.1 unless named
   * otherwise.
   */
  issue(hosts?: { names?: string[]; addresses?: string[]; days?: number }): Certificate;
}

/**
 * An authority that a test makes up, and what it signs: P-256 keys and X.509 of the plainest kind. Node reads
 * certificates but makes none, and this is less than a dependency for it.
 */
export function createAuthority(name = 'an authority of the tests'): Authority {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const extensions = [extension('551d13', sequence(boolean(true)), true)];
  const cert = certificate({ subject: name, issuer: name, publicKey, signedWith: privateKey, extensions, days: 2 });
  return {
    cert,
    issue: ({ names = ['localhost'], addresses = ['127.0.0.1'], days = 2 } = {}) => {
      const own = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const hosts = [
        ...names.map((host) => tagged(0x82, Buffer.from(host))),
        ...addresses.map((address) => tagged(0x87, Buffer.from(address.split('.').map(Number)))),
      ];
      return {
        key: own.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
        cert: certificate({
          subject: names[0] ?? 'nobody',
          issuer: name,
          publicKey: own.publicKey,
          signedWith: privateKey,
          days,
          extensions: [extension('551d11', sequence(...hosts))],
        }),
      };
    },
  };
}

interface Contents {
  subject: string;
  issuer: string;
  publicKey: KeyObject;
  signedWith: KeyObject;
  extensions: Buffer[];
  /** The validity in days from now; one that is negative has passed. */
  days: number;
}

function certificate({ subject, issuer, publicKey, signedWith, extensions, days }: Contents): string {
  const ecdsaWithSha256 = sequence(identifier('2a8648ce3d040302'));
  const day = 86_400_000;
  const toBeSigned = sequence(
    tagged(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    distinguishedName(issuer),
    sequence(time(Date.now() - 30 * day), time(Date.now() + days * day)),
    distinguishedName(subject),
    publicKey.export({ type: 'spki', format: 'der' }),
    tagged(0xa3, sequence(...extensions)),
  );
  const signature = tagged(0x03, Buffer.concat([Buffer.from([0]), sign('sha256', toBeSigned, signedWith)]));
  return new X509Certificate(sequence(toBeSigned, ecdsaWithSha256, signature)).toString();
}

/** DER: a tag, the length of the content, the content. */
function tagged(tag: number, content: Buffer): Buffer {
  const { length } = content;
  if (length < 128) return Buffer.concat([Buffer.from([tag, length]), content]);
  if (length < 256) return Buffer.concat([Buffer.from([tag, 0x81, length]), content]);
  return Buffer.concat([Buffer.from([tag, 0x82, length >> 8, length & 0xff]), content]);
}

const sequence = (...parts: Buffer[]) => tagged(0x30, Buffer.concat(parts));
const integer = (bytes: Buffer) => tagged(0x02, bytes);
const boolean = (value: boolean) => tagged(0x01, Buffer.from([value ? 0xff : 0]));
const identifier = (hex: string) => tagged(0x06, Buffer.from(hex, 'hex'));

function distinguishedName(commonName: string): Buffer {
  return sequence(tagged(0x31, sequence(identifier('550403'), tagged(0x0c, Buffer.from(commonName)))));
}

function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\.\d+|[-:T]/g, '');
  return tagged(0x18, Buffer.from(digits));
}

function extension(id: string, value: Buffer, critical = false): Buffer {
  return sequence(identifier(id), ...(critical ? [boolean(true)] : []), tagged(0x04, value));
}
