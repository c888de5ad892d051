import { z } from 'zod';
import { invalid, type FieldMessages } from '@granary/shared/errors';
import { clientKeys } from '../admission/client-budget';
import { columnsMax } from '../export/columns';
import type { ExportRequest } from '../export/export-request';
import { sendExport } from '../export/send-export';
import type { AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { requestContextOf } from '../pipeline/request-context';
import { route, type RouteRequest } from '../pipeline/route';
import { writeHead } from '../pipeline/send-answer';
import { exportQuery } from '../validation/export-request';
import { findBytesMax } from '../validation/feed-request';
import { objectSchema } from '../validation/schemas';
import { selectText } from './feed-requests';

type ExportQuery = z.output<typeof exportQuery>;

export const exportRoutes = [
  route({
    method: 'GET',
    path: '/apps/{app_id}/collections/{collection}/export',
    id: 'exportCollection',
    summary: 'Export a collection',
    description:
      'All documents of a collection as they were at one height, in the order of their ids, as one stream of any length. ' +
      'What breaks off goes on by the same `at`, with `after` the id of the last whole line that is not empty. Lines and arrays have an empty line now and then ' +
      'while no document meets the filter. See docs/import-export.md.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Read' },
    query: exportQuery,
    responses: {
      200: {
        description: 'The documents. One that was erased since is missing',
        schema: objectSchema.describe('A document on each line, or an array of them, or a table'),
        example: { id: 'first', text: 'Hello', stars: 5 },
        contentTypes: ['application/x-ndjson', 'application/json', 'text/csv'],
        headers: {
          'X-Granary-Height': 'The height that the documents are of',
          'Content-Disposition': '`attachment`, with the names of app and collection and the height',
          'X-Granary-Omitted-Fields':
            'A JSON list of fields of the first documents that no column shows; as a trailer those of all documents',
          'X-Granary-Hints': 'A JSON list of sentences about fields of the filter or the columns that may be misspelt',
        },
      },
      400: {
        description: 'A parameter is not valid, or the height is beyond the last commit',
        codes: ['VALIDATION_FAILED', 'INVALID_QUERY', 'LIMIT_EXCEEDED', 'CURSOR_AHEAD'],
      },
      404: { description: 'There is no such collection', codes: ['COLLECTION_NOT_FOUND'] },
    },
    handle: async (gateway, request) => {
      await exportCollection(gateway, request);
      return undefined;
    },
  }),
];

async function exportCollection(
  gateway: GatewayContext,
  request: RouteRequest<'app_id' | 'collection', AppCaller, ExportQuery>,
): Promise<void> {
  const { incoming, outgoing, call, caller, path } = request;
  const wanted = exportRequestOf(path, request.query);
  request.leaveLimits();
  await sendExport(gateway, wanted, {
    incoming,
    outgoing,
    call,
    keys: clientKeys(path.app_id, gateway.addressOf(incoming)),
    keyId: caller.keyId === '' ? undefined : caller.keyId,
    begin: (headers) => {
      requestContextOf(outgoing).streamedAtMs = performance.now();
      writeHead(outgoing, 200, headers);
    },
  });
}

/** Throws VALIDATION_FAILED. */
function exportRequestOf(path: Record<'app_id' | 'collection', string>, query: ExportQuery): ExportRequest {
  const { format = 'ndjson', after, after_version: afterVersion, find = '', select, history = false } = query;
  if (Buffer.byteLength(find) > findBytesMax) throw queryRefusal({ find: [`may have at most ${findBytesMax} bytes`] });
  if (afterVersion !== undefined && (after === undefined || !history)) {
    throw queryRefusal({ after_version: ['needs history=true, and after'] });
  }
  for (const [name, value] of Object.entries({ columns: query.columns, formulas: query.formulas })) {
    if (value !== undefined && format !== 'csv') throw queryRefusal({ [name]: ['is for format=csv'] });
  }
  return {
    appId: path.app_id,
    collection: path.collection,
    format,
    height: query.at,
    after: after === undefined ? undefined : { id: after, version: String(afterVersion ?? 0) },
    find: Buffer.from(find),
    select: Buffer.from(select === undefined ? '' : selectText(select)),
    hasHistory: history,
    hasDeleted: query.deleted === 'include',
    columns: query.columns === undefined ? undefined : columnNames(query.columns),
    escapesFormulas: query.formulas === 'escape',
  };
}

function columnNames(text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  if (names.length > columnsMax) throw queryRefusal({ columns: [`may name at most ${columnsMax}`] });
  const wrong = names.find((name) => name.split('.').includes(''));
  if (wrong !== undefined) throw queryRefusal({ columns: [`${wrong || 'an empty name'} is no path of a field`] });
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw queryRefusal({ columns: [`names ${twice} twice`] });
  return names;
}

const queryRefusal = (details: FieldMessages) => invalid('The query string is not valid', details);
