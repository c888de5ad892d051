import { collectSpans, type SeenSpan, type SpanCollector } from '@granary/testing/spans';
import { eventually } from '@granary/testing/eventually';
import { newApp, type Granary, type TestApp } from '../support/granary';
import { startGranaryHere } from '../support/own-granary';

const clientsTrace = '0af7651916cd43dd8448eb211c80319c';
const clientsSpan = 'b7ad6b7169203331';
const traceparent = (flags: string) => `00-${clientsTrace}-${clientsSpan}-${flags}`;

/** The spans from the first of the trace to this one, as `service: name`. */
function pathTo(span: SeenSpan, spans: readonly SeenSpan[]): string[] {
  const parent = spans.find(({ spanId }) => spanId === span.parentSpanId);
  return [...(parent ? pathTo(parent, spans) : []), `${span.service}: ${span.name}`];
}

describe.each(['direct', 'wire'] as const)('traces, %s', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let collector: SpanCollector | undefined;
  beforeAll(async () => {
    granary = await startGranaryHere(transport);
    app = await newApp(granary);
  });
  afterAll(() => granary.stop());
  afterEach(async () => {
    await collector?.stop();
    collector = undefined;
  });

  const store = (collection: string, headers: Record<string, string> = {}) =>
    app.call('POST', '/store', { root: `${app.appId}::${collection}`, data: [{ secret: 'value-of-a-user' }] }, headers);

  /** The trace of a write, once both consumers have applied what it led to. */
  const wholeTrace = (seen: SpanCollector) =>
    eventually(async () => {
      const root = seen.spans().find(({ name }) => name === 'POST /store');
      const spans = seen.spans().filter(({ traceId }) => traceId === root?.traceId);
      return spans.filter(({ name }) => name === 'apply usage').length >= 2 ? spans : undefined;
    });

  it('one write is one trace, from the gateway through data and the bus to finance', async () => {
    collector = await collectSpans('always_on');
    expect((await store('traced')).status).toBe(202);
    const spans = await wholeTrace(collector);
    const applied = spans.find(({ service, name }) => service === 'finance' && name === 'apply usage');
    expect(pathTo(applied!, spans)).toEqual([
      'gateway: POST /store',
      'data: granary.data.v1.Data/Store',
      'data: commit',
      'bus: publish usage',
      'finance: apply usage',
    ]);
    expect(spans.filter(({ parentSpanId }) => parentSpanId === undefined)).toHaveLength(1);
    expect(spans.filter(({ failed }) => failed)).toEqual([]);
    const [root] = spans.filter(({ name }) => name === 'POST /store');
    expect(root!.attributes).toMatchObject({ 'http.route': '/store', 'http.response.status_code': 202 });
    // Neither what users send nor whose it is.
    const told = JSON.stringify(collector.spans());
    expect(told).not.toContain('value-of-a-user');
    expect(told).not.toContain(app.key);
    expect(told).not.toContain(app.appId);
  });

  it('a unary call belongs to the trace of its request too', async () => {
    collector = await collectSpans('always_on');
    expect((await app.call('GET', `/apps/${app.appId}/collections`)).status).toBe(200);
    const spans = await eventually(async () => {
      const all = collector!.spans();
      return all.some(({ service }) => service === 'gateway') ? all : undefined;
    });
    const listed = spans.find(({ name }) => name.endsWith('/ListCollections'));
    expect(pathTo(listed!, spans)).toHaveLength(2);
    expect(pathTo(listed!, spans)[0]).toMatch(/^gateway: GET /);
  });

  it('an upload and a download of a blob have spans for the object store', async () => {
    collector = await collectSpans('always_on');
    const path = `/apps/${app.appId}/blobs/files`;
    const answer = await app.call<{ blob_id: string }>('POST', path, Buffer.from('bytes'), {
      'content-type': 'application/octet-stream',
    });
    expect(answer.status).toBe(202);
    expect((await app.call('GET', `${path}/${answer.body.blob_id}`)).text).toBe('bytes');
    const spans = await eventually(async () => {
      const all = collector!.spans();
      const read = all.find(({ name }) => name === 'object read');
      return read && pathTo(read, all).length === 3 ? all : undefined;
    });
    const pathsTo = (name: string) => spans.filter((span) => span.name === name).map((span) => pathTo(span, spans));
    const upload: unknown[] = [expect.stringMatching(/^gateway: POST /), 'blobs: POST /blob'];
    expect(pathsTo('object receive')).toEqual([[...upload, 'blobs: object receive']]);
    expect(pathsTo('object keep')).toEqual([[...upload, 'blobs: object keep']]);
    expect(pathsTo('commit')).toEqual([[...upload, 'data: granary.data.v1.Data/CommitUpload', 'data: commit']]);
    const download: unknown[] = [expect.stringMatching(/^gateway: GET /), 'blobs: GET /blob', 'blobs: object read'];
    expect(pathsTo('object read')).toEqual([download]);
  });

  it('the trace of a client is continued, and its sampling flag applies if configured', async () => {
    collector = await collectSpans('parentbased_traceidratio', 0);
    expect((await store('continued', { traceparent: traceparent('01') })).status).toBe(202);
    const spans = await wholeTrace(collector);
    expect(spans.every(({ traceId }) => traceId === clientsTrace)).toBe(true);
    expect(spans.find(({ service }) => service === 'gateway')!.parentSpanId).toBe(clientsSpan);
    const before = collector.spans().length;
    expect((await store('unsampled', { traceparent: traceparent('00') })).status).toBe(202);
    expect((await store('new')).status).toBe(202);
    expect(collector.spans()).toHaveLength(before);
  });

  it('a client cannot force a trace if the ratio alone decides', async () => {
    collector = await collectSpans('traceidratio', 0);
    expect((await store('refused', { traceparent: traceparent('01') })).status).toBe(202);
    expect(collector.spans()).toEqual([]);
  });

  it('an invalid traceparent begins a new trace, and a failure is marked with its reason', async () => {
    collector = await collectSpans('always_on');
    const answer = await app.call(
      'POST',
      '/store',
      { root: 'another-app::x', data: [{}] },
      { traceparent: '00-0-0-01' },
    );
    expect(answer.status).toBe(403);
    const spans = await eventually(async () => {
      const all = collector!.spans();
      return all.some(({ name }) => name === 'POST /store') ? all : undefined;
    });
    const handler = spans.find(({ name }) => name.endsWith('Data/Store'));
    expect(handler).toMatchObject({ failed: true, attributes: { 'error.type': 'FORBIDDEN' } });
    expect(spans.find(({ name }) => name === 'POST /store')).toMatchObject({ failed: false, parentSpanId: undefined });
  });
});
