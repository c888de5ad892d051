import { invalid } from '@granary/shared/errors';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import { indexNameRule } from '@granary/shared/names';
import { isFieldPath, isIndexName } from '../catalog/names';
import { searchLanguages } from '../catalog/search-language';
import type { NewIndex } from '../tables/define-index';
import { encryptedNameProblem } from '../tables/encrypted-field';
import { pricesOf } from './index-prices';
import type { IndexDefinition } from '../catalog/index-definition';

/** The types of an index over one field. */
const singleTypes = new Set(['btree', 'hash', 'fulltext', 'price', 'string', 'number', 'boolean', 'date', 'encrypted']);
const compositeFieldsMax = 4;

export const isSame = (index: IndexDefinition, { fields, type, unique, language }: NewIndex): boolean =>
  index.declaredType === type &&
  index.unique === unique &&
  index.language === language &&
  index.fields.join() === fields.join();

/** Returns the requested definition. Throws VALIDATION_FAILED. */
export function definitionOf(request: CreateIndexRequest): NewIndex {
  const { name, unique } = request;
  const requestedType = request.indexType.toLowerCase();
  const problems: Record<string, string[]> = {};
  if (!isIndexName(name)) problems['name'] = [indexNameRule];
  // A btree over several fields is what is called composite.
  const type = requestedType === 'btree' && request.fields.length > 1 ? 'composite' : requestedType;
  if (type !== 'composite' && !singleTypes.has(type)) {
    problems['index_type'] = [`must be one of ${[...singleTypes, 'composite'].join(', ')}`];
  }
  const fields = request.fields.length > 0 ? request.fields : [request.fieldName];
  const fieldName = request.fieldName === '' ? fields[0]! : request.fieldName;
  if (type === 'composite') {
    const problem = fieldsProblem(request.fields);
    if (problem) problems['fields'] = [problem];
    else if (!isNameOf(fields, fieldName)) problems['field_name'] = ['must be one of fields, or all of them joined'];
  } else if (fieldProblem(type, fieldName) !== undefined) {
    problems['field_name'] = [fieldProblem(type, fieldName)!];
  } else if (fields.length > 1 || fields[0] !== fieldName) {
    problems['fields'] = ['must be the same as field_name; an index over several fields has the type composite'];
  }
  const language = type === 'fulltext' ? (request.language ?? 'simple').toLowerCase() : null;
  if (language !== null && !searchLanguages.includes(language)) {
    problems['options.language'] = [`must be one of ${searchLanguages.join(', ')}`];
  }
  if (language !== null && unique) problems['unique_constraint'] = ['is not for an index of type fulltext'];
  if (Object.keys(problems).length > 0) throw invalid('The index is not valid', problems);
  return { name, fieldName, fields, type, unique, language, prices: pricesOf(request) };
}

function fieldProblem(type: string, name: string): string | undefined {
  if (type === 'encrypted') return encryptedNameProblem(name);
  return isFieldPath(name) ? undefined : 'must be a field path of 1 to 16 steps with dots between them';
}

function fieldsProblem(fields: readonly string[]): string | undefined {
  if (fields.length < 2 || fields.length > compositeFieldsMax) return `must hold 2 to ${compositeFieldsMax} fields`;
  if (new Set(fields).size < fields.length) return 'must hold each field once';
  return fields.every(isFieldPath) ? undefined : 'must hold field paths of 1 to 16 steps with dots between them';
}

/** Whether a composite may be listed under a name: clients send one of its fields, or all of them joined. */
function isNameOf(fields: readonly string[], name: string): boolean {
  const letters = (text: string) => text.replace(/[^\p{L}\p{N}]/gu, '');
  return fields.includes(name) || letters(name) === letters(fields.join(''));
}
