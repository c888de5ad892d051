import { z } from 'zod';
import type { View } from '@granary/shared/gen/granary/data/v1/View';
import { newTicket } from '@granary/shared/ids';
import { accepted, json, jsonText } from '../answer';
import { limits, route } from '../route';
import {
  accessPolicy,
  accessPolicySchema,
  nameSchema,
  objectSchema,
  recordsSchema,
  successSchema,
  ticketSchema,
  timeSchema,
} from '../schemas';
import { memberBytes } from '../tree';
import { read } from './documents';

const refreshModes = ['live', 'lazy'] as const;

const createSchema = z.strictObject({
  name: nameSchema,
  query: objectSchema.describe('find, select, group_by, aggregate, sort_by, limit, base'),
  source_collections: z.array(nameSchema).min(1).max(16),
  refresh_mode: z.enum(refreshModes).nullish().describe('default: lazy'),
  variables: z.record(z.string(), z.string()).nullish().describe('URL parameter → query field path'),
  access_policy: accessPolicySchema.nullish(),
});

const viewSchema = z
  .object({
    name: z.string(),
    query: objectSchema,
    source_collections: z.array(z.string()),
    refresh_mode: z.enum(refreshModes),
    variables: z.record(z.string(), z.string()),
    access_policy: accessPolicySchema,
    status: z.enum(['building', 'ready', 'failed']),
    error: z.string().nullable(),
    row_count: z.int(),
    created_at: timeSchema,
    refreshed_at: timeSchema.nullable(),
  })
  .meta({ id: 'View' });

function viewJson(view: View) {
  return {
    name: view.name,
    query: jsonText(view.queryJson) ?? {},
    source_collections: view.sourceCollections,
    refresh_mode: view.refreshMode,
    variables: jsonText(view.variablesJson) ?? {},
    access_policy: accessPolicy(view.readAccess),
    status: view.status,
    error: view.error ?? null,
    row_count: Number(view.rowCount),
    created_at: view.createdAt,
    refreshed_at: view.refreshedAt ?? null,
  };
}

const mayRead = { kind: 'app', permission: 'Read' } as const;
const mayWrite = { kind: 'app', permission: 'Write' } as const;
const tag = 'Views';

export const viewRoutes = [
  route({
    method: 'GET',
    path: '/views/{app_id}/{view_name}/data',
    id: 'readView',
    summary: 'Read a materialized view',
    description:
      'Takes filter (JSON), select, sort, limit, offset, cursor, count and the variables of the view. ' +
      'Public, unless the view is private.',
    tag,
    auth: { kind: 'reader' },
    query: 'any',
    responses: {
      200: {
        description: 'A page of rows',
        schema: recordsSchema
          .extend({ refreshed_at: timeSchema.nullable(), refresh_mode: z.enum(refreshModes) })
          .meta({ id: 'ViewRecords' }),
      },
    },
    handle: async ({ clients }, request) =>
      read(request, request.path.view_name, (message) => clients.data.readView(message, request.call)),
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/views',
    prefixes: ['', '/api'],
    id: 'createView',
    summary: 'Create a materialized view',
    tag,
    auth: mayWrite,
    body: {
      kind: 'json',
      schema: createSchema,
      example: {
        name: 'by_stars',
        source_collections: ['notes'],
        query: { group_by: 'stars', aggregate: { notes: { $count: '*' } } },
      },
      limitBytes: limits.definitionBytes,
    },
    responses: {
      202: { description: 'It is being built', schema: ticketSchema.extend({ view_name: z.string() }) },
      409: { description: 'ALREADY_EXISTS' },
      501: { description: 'A mode that is not implemented yet' },
    },
    handle: async ({ clients }, { path, caller, body, tree, call }) => {
      const job = await clients.data.createView(
        {
          appId: path.app_id,
          appNumber: caller.appNumber,
          name: body.name,
          queryJson: memberBytes(tree, 'query'),
          sourceCollections: body.source_collections,
          refreshMode: body.refresh_mode ?? 'lazy',
          variablesJson: memberBytes(tree, 'variables'),
          // Empty: as private as its sources.
          readAccess: body.access_policy?.read ?? '',
          ticketId: newTicket('j', BigInt(caller.appNumber)),
        },
        call,
      );
      const message = `View ${job.name} is being built`;
      return accepted(job.ticketId, { success: true, message, view_name: job.name, ticket_id: job.ticketId });
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/views',
    prefixes: ['', '/api'],
    id: 'listViews',
    summary: 'List the views of an application',
    tag,
    auth: mayRead,
    responses: { 200: { description: 'The views', schema: z.object({ views: z.array(viewSchema) }) } },
    handle: async ({ clients }, { path, call }) => {
      const { views } = await clients.data.listViews({ appId: path.app_id }, call);
      return json(200, { views: views.map(viewJson) });
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/views/{view_name}',
    prefixes: ['', '/api'],
    id: 'getView',
    summary: 'Read the definition and state of a view',
    tag,
    auth: mayRead,
    responses: { 200: { description: 'The view', schema: viewSchema } },
    handle: async ({ clients }, { path, call }) => {
      const request = { appId: path.app_id, name: path.view_name, ticketId: '' };
      return json(200, viewJson(await clients.data.getView(request, call)));
    },
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/views/{view_name}',
    prefixes: ['', '/api'],
    id: 'deleteView',
    summary: 'Delete a view',
    tag,
    auth: mayWrite,
    responses: { 200: { description: 'It is gone', schema: successSchema } },
    handle: async ({ clients }, { path, call }) => {
      await clients.data.deleteView({ appId: path.app_id, name: path.view_name, ticketId: '' }, call);
      return json(200, { success: true, message: `View ${path.view_name} is deleted` });
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/views/{view_name}/refresh',
    prefixes: ['', '/api'],
    id: 'refreshView',
    summary: 'Rebuild a lazy view',
    tag,
    auth: mayWrite,
    responses: { 202: { description: 'It is being rebuilt', schema: ticketSchema } },
    handle: async ({ clients }, { path, caller, call }) => {
      const ticketId = newTicket('j', BigInt(caller.appNumber));
      const job = await clients.data.refreshView({ appId: path.app_id, name: path.view_name, ticketId }, call);
      const message = `View ${path.view_name} is being rebuilt`;
      return accepted(job.ticketId, { success: true, message, ticket_id: job.ticketId });
    },
  }),
];
