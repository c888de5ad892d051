import { z } from 'zod';
import type { Dataset } from '@granary/shared/gen/granary/data/v1/Dataset';
import { created, json, jsonText } from '../http/answer';
import { idempotency, idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { listed, listing, listingHeaders, listingQuery, nextCursorSchema } from '../pipeline/listing';
import { bodyLimits, route } from '../pipeline/route';
import { exampleTime, successSchema, timeSchema } from '../validation/schemas';

const scalarSchema = z.union([z.string(), z.number(), z.boolean(), z.null()]);
const valuesSchema = z.array(scalarSchema).max(100_000);

const putSchema = z.strictObject({
  values: valuesSchema.describe('Scalars; a document has to have one of them, compared as by `in`'),
});

const infoSchema = z
  .object({
    name: z.string().describe('Name of the data set'),
    count: z.int().describe('Values, as they were sent'),
    bytes: z.int().describe('Bytes of their JSON text'),
    updated_at: timeSchema.describe('When it was replaced last'),
  })
  .meta({ id: 'DataSet' });

const exampleInfo = { name: 'blocked', count: 2, bytes: 19, updated_at: exampleTime };

const infoJson = ({ name, count, sizeBytes, updatedAt }: Dataset) => ({
  name,
  count,
  bytes: sizeBytes,
  updated_at: updatedAt,
});

const tag = 'Data sets';

export const datasetRoutes = [
  route({
    method: 'GET',
    path: '/apps/{app_id}/datasets',
    id: 'listDatasets',
    summary: 'List the data sets of an application',
    description: 'In the order of their names, without their values.',
    tag,
    auth: { kind: 'app', permission: 'Read' },
    query: listingQuery,
    responses: {
      200: {
        description: 'The data sets',
        schema: z.object({
          app_id: z.string().describe('The application'),
          datasets: z.array(infoSchema).describe('In the order of their names'),
          next_cursor: nextCursorSchema,
        }),
        headers: listingHeaders,
        example: { app_id: 'demo', datasets: [exampleInfo] },
      },
      400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const page = await clients.data.listDatasets({ appId: path.app_id, ...listing(query) }, call);
      const body = {
        app_id: path.app_id,
        datasets: page.datasets.map(infoJson),
        next_cursor: page.nextCursor || undefined,
      };
      return listed(request, body, page.nextCursor);
    },
  }),
  route({
    method: 'PUT',
    path: '/apps/{app_id}/datasets/{dataset_name}',
    id: 'putDataset',
    summary: 'Create a data set, or replace all of its values',
    description:
      'Filters name it by the operator `inDataset`, which is `in` with its values. Who reads meanwhile sees all old ' +
      'values or all new ones. An application may have 100 data sets of 100,000 values.',
    tag,
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    body: {
      kind: 'raw',
      content: { 'application/json': { schema: putSchema, example: { values: ['192.0.2.7', 12] } } },
      limitBytes: bodyLimits.documentsBytes,
    },
    responses: {
      200: { description: 'It is replaced', schema: infoSchema, example: exampleInfo },
      201: { description: 'It is created', schema: infoSchema, example: exampleInfo },
      400: { description: 'Malformed or invalid', codes: ['LIMIT_EXCEEDED'] },
    },
    handle: async ({ clients }, request) => {
      const { path, body, call } = request;
      const message = { appId: path.app_id, name: path.dataset_name, body, idempotency: idempotency(request, body) };
      const saved = await clients.data.putDataset(message, call);
      const headers = replayedHeader(saved.replayed === true);
      return saved.created === true
        ? created(`/api/apps/${path.app_id}/datasets/${saved.name}`, infoJson(saved), headers)
        : json(200, infoJson(saved), headers);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/datasets/{dataset_name}',
    id: 'getDataset',
    summary: 'Read a data set',
    description: 'With its values, as they were sent.',
    tag,
    auth: { kind: 'app', permission: 'Read' },
    responses: {
      200: {
        description: 'The data set',
        schema: infoSchema.extend({ values: valuesSchema.describe('Its values') }),
        example: { ...exampleInfo, values: ['192.0.2.7', 12] },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const dataset = await clients.data.getDataset({ appId: path.app_id, name: path.dataset_name }, call);
      return json(200, { ...infoJson(dataset), values: jsonText(dataset.valuesJson) });
    },
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/datasets/{dataset_name}',
    id: 'deleteDataset',
    summary: 'Delete a data set',
    description: 'Filters that name it are invalid from then on.',
    tag,
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'Data set blocked is deleted' },
      },
    },
    handle: async ({ clients }, request) => {
      const { path, call } = request;
      const rpcRequest = { appId: path.app_id, name: path.dataset_name, idempotency: idempotencyOfJson(request) };
      const deleted = await clients.data.deleteDataset(rpcRequest, call);
      return json(
        200,
        { success: true, message: `Data set ${path.dataset_name} is deleted` },
        replayedHeader(deleted.replayed === true),
      );
    },
  }),
];
