import { z } from 'zod';
import type { View } from '@granary/shared/gen/granary/data/v1/View';
import { newTicket } from '@granary/shared/ids';
import { accepted, json, jsonText } from '../http/answer';
import { pageEtagHeader, revalidationHeader, unchangedPage } from '../openapi/headers';
import { mayPublish, requirePermission } from '../pipeline/access';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { listed, listing, listingHeaders, listingQuery, nextCursorSchema } from '../pipeline/listing';
import { bodyLimits, route } from '../pipeline/route';
import { selectableQuery } from '../validation/parameters';
import {
  accessPolicy,
  accessPolicySchema,
  exampleTicket,
  exampleTime,
  objectSchema,
  recordsSchema,
  successSchema,
  ticketSchema,
  timeSchema,
} from '../validation/schemas';
import { priceConfigSchema, priceJson, readPriceOf } from '../validation/index-prices';
import { changesSchema, refreshModes, variablesSchema, viewDefinition } from '../validation/view-definition';
import { buildAnswer, buildResponses, changeViewRoute } from './view-change';
import { memberBytes } from '../validation/json-members';
import { publicQueryErrors } from './documents';
import { paidReadHeaders, paymentResponses } from '../paying/payment-docs';
import { read } from './reads';

const exampleView = {
  name: 'by_stars',
  query: { group_by: 'stars', aggregate: { notes: { $count: '*' } } },
  source_collections: ['notes'],
  refresh_mode: 'lazy',
  changes: false,
  variables: { stars: 'stars' },
  access_policy: { read: 'public' },
  status: 'ready',
  error: null,
  row_count: 1,
  unindexed_join_fields: [],
  created_at: exampleTime,
  refreshed_at: exampleTime,
};

const viewSchema = z
  .object({
    name: z.string().describe('Name of the view'),
    query: objectSchema.describe('As it was given'),
    source_collections: z.array(z.string()).describe('The collections that it reads'),
    refresh_mode: z.enum(refreshModes).describe('How it is kept current'),
    changes: changesSchema,
    variables: variablesSchema,
    access_policy: accessPolicySchema,
    read_price_config: priceConfigSchema.optional().describe('Its own price, where it has one'),
    status: z
      .enum(['building', 'ready', 'failed', 'broken'])
      .describe('`broken`: a write failed with it; it is built again'),
    error: z.string().nullable().describe('Why it failed or is broken'),
    row_count: z.int().describe('Rows of the last refresh, of a live view those of now'),
    unindexed_join_fields: z
      .array(z.string())
      .describe('Fields by which its query joins documents and that no index is over, as `collection.field`'),
    created_at: timeSchema.describe('When it was made'),
    refreshed_at: timeSchema
      .nullable()
      .describe('When its rows were computed; of a live view the last write to its sources'),
  })
  .meta({ id: 'View', examples: [exampleView] });

const rowsSchema = recordsSchema
  .extend({
    refreshed_at: timeSchema
      .nullable()
      .describe('When the rows were computed, of a live view the last write to its sources'),
    refresh_mode: z.enum(refreshModes).describe('How the view is kept current'),
  })
  .meta({
    id: 'ViewRecords',
    examples: [
      {
        records: [{ stars: 5, notes: 1 }],
        total: 1,
        page: 1,
        limit: 100,
        refreshed_at: exampleTime,
        refresh_mode: 'lazy',
      },
    ],
  });

function viewJson(view: View) {
  return {
    name: view.name,
    query: jsonText(view.queryJson) ?? {},
    source_collections: view.sourceCollections,
    refresh_mode: view.refreshMode,
    changes: view.keepsChanges,
    variables: jsonText(view.variablesJson) ?? {},
    access_policy: accessPolicy(view.readAccess),
    status: view.status,
    error: view.error ?? null,
    row_count: Number(view.rowCount),
    unindexed_join_fields: view.unindexedJoinFields,
    created_at: view.createdAt,
    refreshed_at: view.refreshedAt ?? null,
    ...(view.readPriceConfig && { read_price_config: priceJson(view.readPriceConfig) }),
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
    description: 'A page of the rows as the last refresh computed them.',
    tag,
    auth: { kind: 'reader' },
    query: {
      reserved: selectableQuery.extend({
        filter: z.string().min(1).optional().describe('A filter in the language of `find`, as JSON text'),
      }),
      others: { name: 'variables', description: 'The variables of the view, by name', example: { stars: 5 } },
    },
    headers: { ...revalidationHeader, ...paidReadHeaders },
    responses: {
      200: { description: 'A page of rows', schema: rowsSchema, headers: pageEtagHeader },
      ...unchangedPage,
      ...publicQueryErrors,
      ...paymentResponses,
    },
    handle: (gateway, request) =>
      read(gateway, request, request.path.view_name, (message) => gateway.clients.data.readView(message, request.call)),
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/views',
    prefixes: ['', '/api'],
    id: 'createView',
    summary: 'Create a materialized view',
    description:
      'It is filled by a task. Without an `access_policy` it is as private as its sources; ' +
      'to show a private source in public needs `Admin`.',
    tag,
    auth: mayWrite,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: viewDefinition,
      example: {
        name: 'by_stars',
        source_collections: ['notes'],
        query: { group_by: 'stars', aggregate: { notes: { $count: '*' } } },
        variables: { stars: 'stars' },
      },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      ...buildResponses('It is being built'),
      409: { description: 'A view or collection has the name', codes: ['ALREADY_EXISTS'] },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, body: view, jsonTree: tree, call } = request;
      if (view.read_price_config) requirePermission(caller, 'Admin');
      const job = await clients.data.createView(
        {
          appId: path.app_id,
          appNumber: caller.appNumber,
          name: view.name,
          queryJson: memberBytes(tree, 'query'),
          sourceCollections: view.source_collections,
          refreshMode: view.refresh_mode ?? 'lazy',
          variablesJson: memberBytes(tree, 'variables'),
          // Empty: as private as its sources.
          readAccess: view.access_policy?.read ?? '',
          ticketId: newTicket('j', BigInt(caller.appNumber)),
          mayPublish: mayPublish(caller),
          keepsChanges: view.changes ?? false,
          ...readPriceOf(view),
          idempotency: idempotencyOfJson(request),
        },
        call,
      );
      return buildAnswer(job);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/views',
    prefixes: ['', '/api'],
    id: 'listViews',
    summary: 'List the views of an application',
    description: 'In the order of their names.',
    tag,
    auth: mayRead,
    query: listingQuery,
    responses: {
      200: {
        description: 'The views',
        schema: z.object({
          views: z.array(viewSchema).describe('In the order of their names'),
          next_cursor: nextCursorSchema,
        }),
        headers: listingHeaders,
        example: { views: [exampleView] },
      },
      400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const { views, nextCursor } = await clients.data.listViews({ appId: path.app_id, ...listing(query) }, call);
      return listed(request, { views: views.map(viewJson), next_cursor: nextCursor || undefined }, nextCursor);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/views/{view_name}',
    prefixes: ['', '/api'],
    id: 'getView',
    summary: 'Read the definition and state of a view',
    description: 'Its rows are read by readView.',
    tag,
    auth: mayRead,
    responses: { 200: { description: 'The view', schema: viewSchema } },
    handle: async ({ clients }, { path, call }) => {
      const request = { appId: path.app_id, name: path.view_name, ticketId: '' };
      return json(200, viewJson(await clients.data.getView(request, call)));
    },
  }),
  changeViewRoute,
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/views/{view_name}',
    prefixes: ['', '/api'],
    id: 'deleteView',
    summary: 'Delete a view',
    description: 'Its source stays as it is.',
    tag,
    auth: mayWrite,
    headers: idempotencyHeader,
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'View by_stars is deleted' },
      },
    },
    handle: async ({ clients }, request) => {
      const { path, call } = request;
      const rpcRequest = {
        appId: path.app_id,
        name: path.view_name,
        ticketId: '',
        idempotency: idempotencyOfJson(request),
      };
      const deleted = await clients.data.deleteView(rpcRequest, call);
      return json(
        200,
        { success: true, message: `View ${path.view_name} is deleted` },
        replayedHeader(deleted.replayed === true),
      );
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/views/{view_name}/refresh',
    prefixes: ['', '/api'],
    id: 'refreshView',
    summary: 'Refresh a view',
    description: 'A task computes its rows again; the old ones are read meanwhile.',
    tag,
    auth: mayWrite,
    headers: idempotencyHeader,
    responses: {
      202: {
        description: 'It is being rebuilt',
        schema: ticketSchema,
        example: { success: true, message: 'View by_stars is being rebuilt', ticket_id: exampleTicket },
      },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, call } = request;
      const ticketId = newTicket('j', BigInt(caller.appNumber));
      const rpcRequest = {
        appId: path.app_id,
        name: path.view_name,
        ticketId,
        idempotency: idempotencyOfJson(request),
      };
      const job = await clients.data.refreshView(rpcRequest, call);
      const message = `View ${path.view_name} is being rebuilt`;
      const body = { success: true, message, ticket_id: job.ticketId };
      return accepted(job.ticketId, body, replayedHeader(job.replayed === true));
    },
  }),
];
