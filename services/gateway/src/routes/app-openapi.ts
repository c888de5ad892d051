import { z } from 'zod';
import { strongEtag } from '@granary/shared/http/etag';
import { jsonBytes } from '../http/answer';
import { etagHeader, revalidationHeader } from '../openapi/headers';
import { mayReadPrivate } from '../pipeline/access';
import { route } from '../pipeline/route';

export const appOpenapiRoutes = [
  route({
    method: 'GET',
    path: '/apps/{app_id}/openapi.json',
    id: 'getApplicationOpenapi',
    summary: 'Read what the application offers to readers, as an OpenAPI document',
    description:
      'Its collections with the types of their fields and filters, its views and its predefined queries with their ' +
      'parameters; kept current by the service. What is private is described to a key that has `Read`.',
    tag: 'Skills',
    auth: { kind: 'reader' },
    headers: revalidationHeader,
    responses: {
      200: {
        description: 'OpenAPI 3.1; 4 MiB at most, beyond it says how much it leaves out',
        schema: z.record(z.string(), z.unknown()),
        example: { openapi: '3.1.0' },
        headers: etagHeader,
      },
      304: { description: 'It has not changed', headers: etagHeader },
    },
    handle: async ({ clients }, { caller, path, call }) => {
      const request = { appId: path.app_id, mayReadPrivate: mayReadPrivate(caller, path.app_id) };
      const { json } = await clients.data.getOpenapi(request, call);
      return jsonBytes(200, json, { ETag: strongEtag(json) });
    },
  }),
];
