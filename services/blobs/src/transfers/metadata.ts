import { createHash } from 'node:crypto';
import { invalid } from '@granary/shared/errors';
import { canonicalJson } from '@granary/shared/json/canonical';
import { jsonErrorPath, translateJsonErrors } from '@granary/shared/json/service-error';
import { readJson } from '@granary/shared/json/value';

const metadataDepthMax = 64;

/**
 * Checks the metadata of a blob: a JSON object, or nothing; `data` checks its fields against the schema. Returns its
 * canonical text, which does not depend on the order of its keys. Throws VALIDATION_FAILED.
 */
export function canonicalMetadata(text: Buffer): string {
  if (text.length === 0) return '';
  const value = translateJsonErrors(
    () => readJson(text, { maxDepth: metadataDepthMax }),
    (error) => invalid('The metadata is not valid JSON', { [jsonErrorPath('metadata', error)]: [error.message] }),
  );
  if (!(value instanceof Map))
    throw invalid('The metadata is not a JSON object', { metadata: ['must be a JSON object'] });
  return canonicalJson(value, ({ text: number }) => number);
}

/** The identity of an upload for an idempotency key. Lengths delimit the texts, so that different uploads differ. */
export function contentHash(sha256: string, contentType: string, filename: string | null, metadata: string): Buffer {
  const hash = createHash('sha256');
  for (const text of [sha256, contentType, filename ?? '', metadata])
    hash.update(`${Buffer.byteLength(text)}:`).update(text);
  return hash.digest();
}
