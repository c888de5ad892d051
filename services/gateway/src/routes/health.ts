import { z } from 'zod';
import { version } from '@granary/shared/version';
import { json } from '../answer';
import { route } from '../route';

const states = z.enum(['healthy', 'degraded', 'unhealthy']);
const checkSchema = z.looseObject({ status: states, latency_ms: z.int(), version: z.string().nullable() });
const healthSchema = z
  .object({ status: states, version: z.string(), checks: z.record(z.string(), checkSchema) })
  .meta({ id: 'Health' });
const aliveSchema = z.object({ status: z.string() });

const features = [
  ...['collections', 'schemas', 'documents', 'history', 'list', 'indexes', 'views', 'queries'],
  ...['blobs', 'tasks', 'wallet', 'payouts', 'retention', 'skills', 'idempotency'],
];

const links = { docs: '/docs', openapi: '/openapi.json' };
/** The same links in the form of RFC 8631. */
const linkHeader = `<${links.openapi}>; rel="service-desc"; type="application/json", <${links.docs}>; rel="service-doc"`;

const tag = 'Service';
const auth = { kind: 'public' } as const;

export const healthRoutes = [
  route({
    method: 'GET',
    path: '/health',
    prefixes: ['', '/api'],
    id: 'getHealth',
    summary: 'Read how every service is',
    tag,
    auth,
    urgent: true,
    responses: {
      200: { description: 'Healthy or degraded', schema: healthSchema },
      503: { description: 'A service that is needed is down', schema: healthSchema },
    },
    handle: async ({ health }, { call }) => {
      const found = await health(call.requestId);
      return json(found.status === 'unhealthy' ? 503 : 200, found, { 'Cache-Control': 'no-store' });
    },
  }),
  route({
    method: 'GET',
    path: '/livez',
    prefixes: [''],
    id: 'getLiveness',
    summary: 'Whether the process answers',
    tag,
    auth,
    urgent: true,
    responses: { 200: { description: 'It does', schema: aliveSchema } },
    handle: () => Promise.resolve(json(200, { status: 'alive' }, { 'Cache-Control': 'no-store' })),
  }),
  route({
    method: 'GET',
    path: '/readyz',
    prefixes: [''],
    id: 'getReadiness',
    summary: 'Whether requests should be sent here',
    tag,
    auth,
    urgent: true,
    responses: {
      200: { description: 'Yes', schema: aliveSchema },
      503: { description: 'Not now: it is stopping, or the data service is down', schema: aliveSchema },
    },
    handle: async ({ health, isDraining }, { call }) => {
      const isReady = !isDraining() && (await health(call.requestId)).checks.data.status !== 'unhealthy';
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
    tag,
    auth,
    responses: {
      200: {
        description: 'Name and version, and where the documentation is',
        schema: z.object({
          status: z.literal('ok'),
          version: z.string(),
          name: z.string(),
          links: z.object({ docs: z.string(), openapi: z.string() }),
        }),
      },
    },
    handle: () => Promise.resolve(json(200, { status: 'ok', version, name: 'granary', links }, { Link: linkHeader })),
  }),
  route({
    method: 'GET',
    path: '/openapi.json',
    id: 'getOpenapi',
    summary: 'Read this document',
    tag,
    auth,
    responses: { 200: { description: 'OpenAPI 3.1', schema: z.record(z.string(), z.unknown()) } },
    handle: ({ openapi }, { incoming }) => openapi.for(incoming),
  }),
  route({
    method: 'GET',
    path: '/docs',
    prefixes: ['', '/api'],
    id: 'getDocs',
    summary: 'Read this document as a page',
    tag,
    auth,
    responses: { 200: { description: 'The page', schema: z.string(), contentType: 'text/html' } },
    handle: ({ docs }, { incoming }) => docs.for(incoming),
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/health',
    id: 'getApplicationHealth',
    summary: 'Read what the service can do for an application',
    tag,
    auth: { kind: 'app', permission: 'Read' },
    responses: {
      200: {
        description: 'Version and features',
        schema: z.object({ status: z.literal('ok'), version: z.string(), features: z.array(z.string()) }),
      },
    },
    handle: () => Promise.resolve(json(200, { status: 'ok', version, features })),
  }),
];
