import { BrokenChainError, type LinkPart } from '@granary/data/chain/chain-check';

/** The first line of an export: the app, and its head when the export began. */
export interface ExportHeader {
  granary_export: 1;
  app_id: string;
  head: HeadJson;
}

export interface HeadJson {
  height: number;
  hash: string;
}

/** A commit as `GET …/commits?texts=true` has it, or a part of one; each other line of an export is one. */
export interface CommitJson {
  height: number;
  hash: string;
  content_hash: string;
  collection: string;
  document_count: number;
  place: number;
  documents: Array<{ id: string; sha256: string | null; text: string | null }>;
}

/** The input is not of the form that an export or an answer has. */
export class FormError extends Error {
  override readonly name = 'FormError';
}

const hex = /^[0-9a-f]{64}$/;

/** Throws FormError, and BrokenChainError for a hash that is none. */
export function toLinkPart(value: unknown): LinkPart {
  if (!isCommit(value)) throw new FormError('is not a commit');
  const height = BigInt(value.height);
  const bytesOf = (hash: string): Buffer => {
    if (hex.test(hash)) return Buffer.from(hash, 'hex');
    throw new BrokenChainError(height, 'has a hash that is not 64 hexadecimal digits');
  };
  return {
    height,
    hash: bytesOf(value.hash),
    content: bytesOf(value.content_hash),
    collection: value.collection,
    entryCount: value.document_count,
    place: value.place,
    entries: value.documents.map(({ id, sha256, text }) => ({
      id,
      sha256: sha256 === null ? null : bytesOf(sha256),
      text,
    })),
  };
}

export function toHead(value: unknown): HeadJson {
  if (isObject(value) && isCount(value['height']) && typeof value['hash'] === 'string' && hex.test(value['hash'])) {
    return { height: value['height'], hash: value['hash'] };
  }
  throw new FormError('names no head');
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isTextOrNull = (value: unknown): boolean => value === null || typeof value === 'string';

const isCommit = (value: unknown): value is CommitJson =>
  isObject(value) &&
  isCount(value['height']) &&
  typeof value['hash'] === 'string' &&
  typeof value['content_hash'] === 'string' &&
  typeof value['collection'] === 'string' &&
  isCount(value['document_count']) &&
  isCount(value['place']) &&
  Array.isArray(value['documents']) &&
  value['documents'].every(
    (entry) =>
      isObject(entry) &&
      typeof entry['id'] === 'string' &&
      isTextOrNull(entry['sha256']) &&
      isTextOrNull(entry['text']),
  );
