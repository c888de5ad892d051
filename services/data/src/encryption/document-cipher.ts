import {
  compileWatch,
  documentDepthMax,
  readDocument,
  spliceText,
  textAt,
  type Replacement,
  type WatchTree,
} from '../json/document';
import { JsonReader } from '@granary/shared/json/reader';
import { compileProjection, project, type Projection } from '../json/project';
import type { CollectionRef } from '../catalog/collection';
import { termPath } from '../catalog/index-definition';
import { requireKeys } from '../catalog/encrypted-fields';
import type { DataKey } from '../encryption-keys/data-keys';
import { encryptedPrefix, FieldCipher } from './field-cipher';

/** A field whose values are stored encrypted. */
export interface EncryptedField {
  name: string;
  path: readonly string[];
  /** The path of the blind index in a stored document. */
  termName: string;
  cipher: FieldCipher;
}

/** A value was encrypted by a key that is not known: by a new one perhaps, and the collection was looked up before. */
export class UndecryptableError extends Error {
  override readonly name = 'UndecryptableError';
}

/** Encrypts and decrypts the fields of the documents of one collection. */
export class DocumentCipher {
  readonly fields: readonly EncryptedField[];
  private readonly watch: WatchTree;
  private readonly withoutFields: Projection;

  constructor(collectionNumber: bigint, names: readonly string[], dataKeys: readonly DataKey[]) {
    this.fields = names.map((name) => ({
      name,
      path: name.split('.'),
      termName: termPath(name),
      cipher: new FieldCipher({ collectionNumber, name }, dataKeys),
    }));
    this.watch = compileWatch(this.fields.map(({ path }) => path));
    this.withoutFields = compileProjection(new Map(names.map((name) => [name, false] as const)));
  }

  /** A stored document with the values of its encrypted fields. Throws an UndecryptableError. */
  decrypt(stored: Buffer): Buffer {
    if (!stored.includes(encryptedPrefix)) return stored;
    const reader = new JsonReader(stored, { maxDepth: documentDepthMax });
    const document = readDocument(reader, this.watch, { sizeMaxBytes: Infinity });
    const replacements: Replacement[] = [];
    for (const [index, { name, cipher }] of this.fields.entries()) {
      const capture = document.captures[index];
      if (capture?.type !== 'object') continue;
      const text = cipher.decrypt(document.id!, textAt(stored, capture));
      if (!text) throw new UndecryptableError(`the field ${name} of a document cannot be decrypted`);
      replacements.push({ start: capture.start, end: capture.end, text: text.toString() });
    }
    return spliceText(stored, document, { defaults: [], replacements });
  }

  /** A stored document without its encrypted fields, those that are null included. */
  omit(stored: Buffer): Buffer {
    return project(stored, this.withoutFields);
  }
}

const ciphers = new WeakMap<CollectionRef, DocumentCipher>();

/**
 * The cipher of a collection, kept by its ref; undefined where none of its fields is encrypted. Throws
 * ENCRYPTION_UNAVAILABLE.
 */
export function cipherOf(ref: CollectionRef): DocumentCipher | undefined {
  const { encrypted } = ref;
  if (!encrypted) return undefined;
  let cipher = ciphers.get(ref);
  if (!cipher) {
    cipher = new DocumentCipher(ref.number, encrypted.names, requireKeys(encrypted));
    ciphers.set(ref, cipher);
  }
  return cipher;
}
