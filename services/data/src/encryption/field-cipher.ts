import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import type { DataKey } from '../encryption-keys/data-keys';

const [nonceBytes, tagBytes] = [12, 16];

/** Which field this is: keys are derived from it, so equal values of two fields have nothing in common. */
export interface FieldPlace {
  collectionNumber: bigint;
  name: string;
}

interface FieldKey {
  version: number;
  cipher: Buffer;
}

const encrypted = /^\{"\$enc":"v1\.(\d{1,9})\.([\w-]+)","\$term":"([\w-]{43})"\}$/;
const prefix = '{"$enc":"v1.';
/** The beginning of every stored value. */
export const encryptedPrefix = Buffer.from(prefix);

/** The beginning of every stored value that the key of a version has encrypted. */
export const storedKeyPrefix = (version: number): string => `${prefix}${version}.`;

/**
 * Encrypts the values of one field. A stored value is the JSON text
 * `{"$enc":"v1.<version of the key>.<nonce, ciphertext and tag>","$term":"<blind index>"}`, both in base64url:
 * AES-256-GCM with a random nonce of 96 bits, and HMAC-SHA-256 of the canonical value. Term and place are authenticated
 * with the ciphertext, so neither can be moved. Both keys are derived by HKDF-SHA-256 from a data key of the app, for
 * this field: that of the ciphertext from the latest one, that of the blind index always from the first, for values are
 * equal and unique whichever key encrypts them.
 */
export class FieldCipher {
  private readonly keys: readonly FieldKey[];
  private readonly termKey: Buffer;

  /** `dataKeys` are all those of the app, by their versions. */
  constructor(
    private readonly place: FieldPlace,
    dataKeys: readonly DataKey[],
  ) {
    this.keys = dataKeys.map(({ version, key }) => ({ version, cipher: this.derive(key, 'value') }));
    this.termKey = this.derive(dataKeys[0]!.key, 'term');
  }

  /**
   * The text that is stored for a value of the document `id`: its JSON text, and its canonical text
   * (values/canonical.ts).
   */
  encrypt(id: string, jsonText: Buffer, canonical: string): string {
    const key = this.keys.at(-1)!;
    const term = this.term(canonical);
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', key.cipher, nonce).setAAD(this.authenticated(id, term));
    const bytes = Buffer.concat([nonce, cipher.update(jsonText), cipher.final(), cipher.getAuthTag()]);
    return `{"$enc":"v1.${key.version}.${bytes.toString('base64url')}","$term":"${term}"}`;
  }

  /** The JSON text of a stored value; undefined where it was not stored by this field of the document `id`. */
  decrypt(id: string, stored: string): Buffer | undefined {
    const [, version, text, term] = encrypted.exec(stored) ?? [];
    if (text === undefined || term === undefined) return undefined;
    const key = this.keys.find((one) => String(one.version) === version);
    if (!key) return undefined;
    const bytes = Buffer.from(text, 'base64url');
    const end = bytes.length - tagBytes;
    if (end < nonceBytes) return undefined;
    try {
      const decipher = createDecipheriv('aes-256-gcm', key.cipher, bytes.subarray(0, nonceBytes));
      decipher.setAAD(this.authenticated(id, term)).setAuthTag(bytes.subarray(end));
      return Buffer.concat([decipher.update(bytes.subarray(nonceBytes, end)), decipher.final()]);
    } catch {
      return undefined;
    }
  }

  /** The blind index of a value, by its canonical text. */
  term(canonical: string): string {
    return createHmac('sha256', this.termKey).update(canonical).digest('base64url');
  }

  /** Whether a stored value was encrypted by the latest key. */
  isCurrent(stored: string): boolean {
    return encrypted.exec(stored)?.[1] === String(this.keys.at(-1)!.version);
  }

  private authenticated(id: string, term: string): Buffer {
    const { collectionNumber, name } = this.place;
    return Buffer.from(JSON.stringify([collectionNumber.toString(), name, id, term]));
  }

  private derive(dataKey: Buffer, use: string): Buffer {
    const { collectionNumber, name } = this.place;
    const info = JSON.stringify(['granary field', use, collectionNumber.toString(), name]);
    return Buffer.from(hkdfSync('sha256', dataKey, '', info, 32));
  }
}
