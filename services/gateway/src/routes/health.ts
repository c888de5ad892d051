import { z } from 'zod';
import { version } from '@granary/shared/version';
import { json } from '../http/answer';
import { etagHeader, revalidationHeader } from '../openapi/headers';
import { route } from '../pipeline/route';

const states = z.enum(['healthy', 'degraded', 'unhealthy']);
const checkSchema = z.looseObject({
  status: states.describe('Of the service'),
  latency_ms: z.int().describe('How long its answer took'),
  version: z.string().nullable().describe('Version of the service; null when it does not answer'),
});
const healthSchema = z
  .object({
    status: states.describe('The worst of the services that are needed'),
    version: z.string().describe('Version of the gateway'),
    checks: z.record(z.string(), checkSchema).describe('By service, with what each needs'),
  })
  .meta({
    id: 'Health',
    examples: [
      {
        status: 'healthy',
        version: '0.2.0',
        checks: { gateway: { status: 'healthy', latency_ms: 0, version: '0.2.0' } },
      },
    ],
  });
const aliveSchema = z.object({ status: z.string().describe('In one word') });

const features = [
  'collections',
  'schemas',
  'documents',
  'history',
  'list',
  'indexes',
  'views',
  'queries',
  'blobs',
  'tasks',
  'wallet',
  'payouts',
  'retention',
  'skills',
  'idempotency',
];

const links = { docs: '/docs', openapi: '/openapi.json' };
/** The links as a header, in the form of RFC 8631. */
const linkHeader = `<${links.openapi}>; rel="service-desc"; type="application/json", <${links.docs}>; rel="service-doc"`;

const tag = 'Service';
const auth = { kind: 'public' } as const;

export const healthRoutes = [
  route({
    method: 'GET',
    path: '/health',
    prefixes: ['', '/api'],
    id: 'getHealth',
    summary: 'Check the health of all services',
    description: 'As of half a second ago at most.',
    tag,
    auth,
    urgent: true,
    responses: {
      200: { description: 'Healthy or degraded', schema: healthSchema },
      503: { description: 'A service that is needed is down', schema: healthSchema },
    },
    handle: async ({ health }) => {
      const { health: report } = await health();
      return json(report.status === 'unhealthy' ? 503 : 200, report, { 'Cache-Control': 'no-store' });
    },
  }),
  route({
    method: 'GET',
    path: '/livez',
    prefixes: [''],
    id: 'getLiveness',
    summary: 'Liveness probe',
    description: 'Answers as long as the process does, whatever the load.',
    tag,
    auth,
    urgent: true,
    responses: { 200: { description: 'It is alive', schema: aliveSchema, example: { status: 'alive' } } },
    handle: () => Promise.resolve(json(200, { status: 'alive' }, { 'Cache-Control': 'no-store' })),
  }),
  route({
    method: 'GET',
    path: '/readyz',
    prefixes: [''],
    id: 'getReadiness',
    summary: 'Readiness probe',
    description: 'Whether a load balancer should send requests here.',
    tag,
    auth,
    urgent: true,
    responses: {
      200: { description: 'It is ready', schema: aliveSchema, example: { status: 'ready' } },
      503: {
        description: 'It is stopping, or documents cannot be read',
        schema: aliveSchema,
        example: { status: 'stopping' },
      },
    },
    handle: async ({ health, isDraining }) => {
      const isReady = !isDraining() && (await health()).servesReads;
      const status = isDraining() ? 'stopping' : isReady ? 'ready' : 'not ready';
      return json(isReady ? 200 : 503, { status }, { 'Cache-Control': 'no-store' });
    },
  }),
  route({
    method: 'GET',
    path: '/',
    prefixes: [''],
    id: 'getService',
    summary: 'Name and version of the service',
    description: 'The health of its parts is at `/health`.',
    tag,
    auth,
    responses: {
      200: {
        description: 'Name and version, and where the documentation is',
        schema: z.object({
          status: z.literal('ok').describe('Always `ok`'),
          version: z.string().describe('Version of the service'),
          name: z.string().describe('Name of the service'),
          links: z
            .object({
              docs: z.string().describe('Path of the documentation as a page'),
              openapi: z.string().describe('Path of the OpenAPI document'),
            })
            .describe('Where the documentation is'),
        }),
        headers: { Link: 'The same links' },
        example: { status: 'ok', version: '0.2.0', name: 'granary', links },
      },
    },
    handle: () => Promise.resolve(json(200, { status: 'ok', version, name: 'granary', links }, { Link: linkHeader })),
  }),
  route({
    method: 'GET',
    path: '/openapi.json',
    prefixes: ['', '/api'],
    id: 'getOpenapi',
    summary: 'Read the OpenAPI document',
    description: 'Made from the table that routes the requests.',
    tag,
    auth,
    headers: revalidationHeader,
    responses: {
      200: {
        description: 'OpenAPI 3.1',
        schema: z.record(z.string(), z.unknown()),
        example: { openapi: '3.1.0' },
        headers: etagHeader,
      },
      304: { description: 'It has not changed', headers: etagHeader },
    },
    handle: ({ openapi }, { incoming }) => openapi.for(incoming),
  }),
  route({
    method: 'GET',
    path: '/docs',
    prefixes: ['', '/api'],
    id: 'getDocs',
    summary: 'Read the OpenAPI document as a page',
    description: 'For a browser.',
    tag,
    auth,
    headers: revalidationHeader,
    responses: {
      200: {
        description: 'The page',
        schema: z.string(),
        contentTypes: ['text/html'],
        example: '<!doctype html>',
        headers: etagHeader,
      },
      304: { description: 'It has not changed', headers: etagHeader },
    },
    handle: ({ docs }, { incoming }) => docs.for(incoming),
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/health',
    id: 'getApplicationHealth',
    summary: 'Read what the service can do for an application',
    description: 'For clients that choose what to show by it.',
    tag,
    auth: { kind: 'app', permission: 'Read' },
    responses: {
      200: {
        description: 'Version and features',
        schema: z.object({
          status: z.literal('ok').describe('Always `ok`'),
          version: z.string().describe('Version of the service'),
          features: z.array(z.string()).describe('Names of what is implemented'),
        }),
        example: { status: 'ok', version: '0.2.0', features: ['collections', 'documents'] },
      },
    },
    handle: () => Promise.resolve(json(200, { status: 'ok', version, features })),
  }),
];
