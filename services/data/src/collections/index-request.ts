import { invalid, notImplemented } from '@granary/shared/errors';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import { isFieldPath, isIndexName } from '../catalog/names';
import type { NewIndex } from '../tables/define-index';
import type { IndexDefinition } from '../catalog/index-definition';

const typeSynonyms = new Set(['btree', 'string', 'number', 'boolean', 'date']);
const laterTypes = new Set(['hash', 'fulltext', 'price', 'encrypted']);
const compositeFieldsMax = 4;

export const isSame = (index: IndexDefinition, { fields, type, unique }: NewIndex): boolean =>
  index.declaredType === type && index.unique === unique && index.fields.join() === fields.join();

/** The definition that is asked for. Throws VALIDATION_FAILED, and NOT_IMPLEMENTED for the types that are to come. */
export function definitionOf(request: CreateIndexRequest): NewIndex {
  const { name, unique } = request;
  const asked = request.indexType.toLowerCase();
  if (laterTypes.has(asked)) throw notImplemented(`an index of type ${asked}`);
  const problems: Record<string, string[]> = {};
  if (!isIndexName(name)) problems['name'] = ['must have 1 to 200 printable characters'];
  // A btree over several fields is what is called composite.
  const type = asked === 'btree' && request.fields.length > 1 ? 'composite' : asked;
  if (type !== 'composite' && !typeSynonyms.has(type)) {
    problems['index_type'] = [`must be one of ${[...typeSynonyms, 'composite', ...laterTypes].join(', ')}`];
  }
  const fields = request.fields.length > 0 ? request.fields : [request.fieldName];
  const fieldName = request.fieldName === '' ? fields[0]! : request.fieldName;
  if (type === 'composite') {
    const problem = fieldsProblem(request.fields);
    if (problem) problems['fields'] = [problem];
    else if (!isNameOf(fields, fieldName)) problems['field_name'] = ['must be one of fields, or all of them joined'];
  } else if (!isFieldPath(fieldName)) {
    problems['field_name'] = ['must be a field path of 1 to 16 steps with dots between them'];
  } else if (fields.length > 1 || fields[0] !== fieldName) {
    problems['fields'] = ['must be the same as field_name; an index over several fields has the type composite'];
  }
  if (Object.keys(problems).length > 0) throw invalid('The index is not valid', problems);
  return { name, fieldName, fields, type, unique };
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
