import { limitDefault, limitMax, offsetMax } from '../query/language/paging';
import { urlParameter } from './parameters';
import type { Part } from './part';

const text = { type: 'string' };
const whole = { type: 'integer', minimum: 0 };

/** Parameters that operations share. */
const parameters = {
  limit: urlParameter(
    'limit',
    { type: 'integer', minimum: 1, maximum: limitMax, default: limitDefault },
    'Records of the page, at most',
  ),
  offset: urlParameter('offset', { ...whole, maximum: offsetMax, default: 0 }, 'Records to skip before the page'),
  cursor: urlParameter('cursor', text, '`next_cursor` of the page before; instead of `offset`'),
  count: urlParameter(
    'count',
    { ...text, enum: ['exact', 'none'], default: 'exact' },
    '`none`: `total` is null unless it is known without counting',
  ),
  sort: urlParameter('sort', text, 'Fields separated by commas; `-field` descends. Ties go by `id`'),
  select: urlParameter('select', text, 'The fields to return, separated by commas'),
  filter: urlParameter('filter', text, 'A filter in the language of `find`, as JSON text'),
  filters: {
    name: 'filters',
    in: 'query',
    style: 'form',
    explode: true,
    description: 'The indexed fields with an operator as a suffix, such as `price.$gte=10`',
    schema: { type: 'object', additionalProperties: { type: ['string', 'number', 'boolean'] } },
  },
  version: urlParameter('version', text, 'The version of the query; by default the newest'),
  ifNoneMatch: {
    name: 'If-None-Match',
    in: 'header',
    description: 'ETags, or `*`: 304 when the page has one of them',
    schema: text,
  },
};

export type SharedName = keyof typeof parameters | 'appKey';

/** The schema of a page, whose records operations refine. */
export const pageSchemaName = 'granary.Page';

const page = {
  type: 'object',
  required: ['records', 'total', 'page', 'limit'],
  properties: {
    records: { type: 'array', items: { type: 'object' } },
    total: {
      type: ['integer', 'null'],
      description: 'How many records match, on all pages; null where it was not counted',
    },
    page: { type: ['integer', 'null'], description: 'floor(offset / limit) + 1; null for a page by cursor' },
    limit: { ...whole, description: 'The limit that was applied' },
    next_cursor: { ...text, description: 'Where there is more: the cursor of the next page' },
  },
};

const error = {
  type: 'object',
  required: ['error', 'code', 'details'],
  properties: {
    error: { ...text, description: 'Text for people; it may change' },
    code: { ...text, description: 'What went wrong; stable' },
    details: { type: 'object', description: 'For a validation error: a list of messages for each field path' },
  },
};

const refusal = (description: string): Part => ({
  description,
  content: { 'application/json': { schema: { $ref: '#/components/schemas/granary.Error' } } },
});

const appKey = { type: 'apiKey', in: 'header', name: 'X-App-Key', description: 'A key of the application' };

/** The header of a page and of the 304 in its place. */
export const pageHeaders = { ETag: { $ref: '#/components/headers/ETag' } };
const etag = { description: 'Changes with all that the page shows; the same in every compression', schema: text };

/** The components that the described operations refer to. */
export function sharedComponents(used: ReadonlySet<SharedName>): {
  schemas: { [name: string]: Part };
  [kind: string]: { [name: string]: Part };
} {
  const isEmpty = used.size === 0;
  const isPrivate = used.has('appKey');
  return {
    schemas: isEmpty ? {} : { [pageSchemaName]: page, 'granary.Error': error },
    parameters: Object.fromEntries(Object.entries(parameters).filter(([name]) => used.has(name as SharedName))),
    responses: {
      ...(!isEmpty && {
        Unchanged: { description: 'The page is the one that `If-None-Match` names', headers: pageHeaders },
        Invalid: refusal('A parameter is invalid'),
        NotFound: refusal('It does not exist any more'),
        Other: refusal('Any other error'),
      }),
      ...(isPrivate && { Unauthorized: refusal('The key is missing or unknown') }),
    },
    headers: isEmpty ? {} : { ETag: etag },
    securitySchemes: isPrivate ? { appKey } : {},
  };
}
