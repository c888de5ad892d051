import { documentDepthMax, readDocument, textAt } from '../json/document';
import { JsonReader } from '@granary/shared/json/reader';
import type { CollectionRef } from '../catalog/collection';
import { fieldProblems, type FieldRule } from '../catalog/schema';
import { cipherOf } from '../encryption/document-cipher';
import { captureWhole } from './keys';
import { compileRules } from './rules';

/** The type that the values of a field are to have. */
export interface WantedType {
  /** The path of the field, with dots. */
  name: string;
  /** A rule of nothing but the type. */
  rule: FieldRule;
  /** Whether objects and arrays fit, too. */
  allowsContainers: boolean;
}

/** Finds the first field of a stored document whose value has not the wanted type; undefined where there is none. */
export type FindMisfit = (text: Buffer) => string | undefined;

/**
 * Compiles the search for misfits in the documents of a collection. Null and what is missing fit every type. Throws
 * ENCRYPTION_UNAVAILABLE.
 */
export function misfitFinder(collection: CollectionRef, wantedTypes: readonly WantedType[]): FindMisfit {
  const fields = new Map(wantedTypes.map(({ name, rule }) => [name, rule]));
  const encrypted = cipherOf(collection)?.fields ?? [];
  const { watch } = compileRules([], [], { fields }, encrypted);
  return (text) => {
    const reader = new JsonReader(text, { maxDepth: documentDepthMax });
    const { captures, id } = readDocument(reader, watch, { sizeMaxBytes: Infinity });
    const misfit = wantedTypes.find(({ name, rule, allowsContainers }, index) => {
      const capture = captures[index];
      const field = encrypted.find((one) => one.name === name);
      const stored = field && capture?.type === 'object' ? field.cipher.decrypt(id!, textAt(text, capture)) : undefined;
      if (stored) return fieldProblems(rule, stored, captureWhole(stored)).length > 0;
      if (allowsContainers && (capture?.type === 'object' || capture?.type === 'array')) return false;
      return fieldProblems(rule, text, capture).length > 0;
    });
    return misfit?.name;
  };
}
