import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { toEvent, toMessage } from '@granary/shared/bus/envelope';
import { ConfigError, readConfig } from '@granary/shared/config';
import type { Event } from '@granary/shared/gen/granary/events/v1/Event';
import { addSource, counters, gauges, histograms, renderMetrics } from '@granary/shared/telemetry/metrics';
import { startMetricsServer } from '@granary/shared/telemetry/metrics-server';
import { telemetrySchema } from '@granary/shared/telemetry/settings';
import { startRequest, startSpan } from '@granary/shared/telemetry/trace';
import { forkProgram } from '@granary/testing/programs';
import { collectSpans } from '@granary/testing/spans';
import type { Traced } from './support/telemetry-process';

const read = (environment: Record<string, string>) => readConfig(telemetrySchema, environment);
const span = { service: 'gateway', name: 'GET', kind: 'server' } as const;
const sampled = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

/** Takes what is sent to it as a collector of OTLP does. */
async function startCollector() {
  const posts: Array<{ path: string; body: string }> = [];
  const server = createServer((incoming, answer) => {
    const chunks: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
    incoming.on('end', () => {
      posts.push({ path: incoming.url!, body: Buffer.concat(chunks).toString('latin1') });
      answer.writeHead(200).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, posts, stop: () => new Promise((resolve) => server.close(resolve)) };
}

async function runProcess(environment: Record<string, string>): Promise<Traced> {
  const env = { PATH: process.env['PATH'], ...environment };
  const child = await forkProgram(join(__dirname, 'support/telemetry-process.ts'), [], { env });
  return new Promise((resolve, reject) => {
    child.once('message', (traced) => resolve(traced as Traced));
    child.once('exit', (code) => reject(new Error(`the process ended with ${code}`)));
  });
}

describe('tracing', () => {
  test.each<Record<string, string>>([
    {},
    { OTEL_EXPORTER_OTLP_ENDPOINT: '' },
    { OTEL_TRACES_SAMPLER: 'always_on' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9', OTEL_SDK_DISABLED: 'true' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9', OTEL_TRACES_EXPORTER: 'none' },
  ])('is off with %j: not even the SDK is loaded', async (environment) => {
    expect(await runProcess(environment)).toEqual({ traceparents: [null, null], isSdkLoaded: false });
  });

  test('sends what is sampled to where the environment says, and all of it before the process ends', async () => {
    const collector = await startCollector();
    const { traceparents, isSdkLoaded } = await runProcess({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    await collector.stop();
    expect(isSdkLoaded).toBe(true);
    const [root, within] = traceparents as [string, string];
    for (const each of [root, within]) expect(each).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(within.slice(3, 35)).toBe(root.slice(3, 35));
    expect(within).not.toBe(root);
    expect(collector.posts.map(({ path }) => path)).toEqual(['/v1/traces']);
    const { body } = collector.posts[0]!;
    for (const told of ['granary-test', 'granary-gateway', 'granary-data', 'commit', '23505']) {
      expect(body).toContain(told);
    }
    // Neither what an error says nor the command line, in which there may be a key.
    for (const secret of ['with the text of a user', 'telemetry-process']) expect(body).not.toContain(secret);
  });

  test('nothing below a parent that is not sampled, or that is no traceparent, is traced', async () => {
    const collector = await collectSpans('always_on');
    try {
      expect(startSpan(span, sampled)).toBeDefined();
      for (const parent of [
        undefined,
        '',
        sampled.replace(/01$/, '00'),
        sampled.replace(/^00/, 'ff'),
        sampled.replace('0af7651916cd43dd8448eb211c80319c', '0'.repeat(32)),
        sampled.replace('b7ad6b7169203331', '0'.repeat(16)),
        `${sampled}-x`,
      ]) {
        expect(startSpan(span, parent)).toBeUndefined();
      }
    } finally {
      await collector.stop();
    }
    expect(startSpan(span, sampled)).toBeUndefined();
  });

  test('the share of requests that is sampled is the one that is configured, and by id where others began the trace', async () => {
    const share = (traceparent: () => string | undefined) => {
      let count = 0;
      for (let at = 0; at < 5_000; at++) if (startRequest(() => span, traceparent())) count++;
      return count / 5_000;
    };
    const collector = await collectSpans('traceidratio', 0.2);
    try {
      const given = () => `00-${randomBytes(16).toString('hex')}-b7ad6b7169203331-01`;
      for (const found of [share(() => undefined), share(given)]) {
        expect(found).toBeGreaterThan(0.15);
        expect(found).toBeLessThan(0.25);
      }
      const same = given();
      expect([0, 1]).toContain(share(() => same));
    } finally {
      await collector.stop();
    }
  });

  test.each([{ OTEL_TRACES_SAMPLER: 'jaeger_remote' }, { OTEL_TRACES_SAMPLER_ARG: '1.5' }, { METRICS_LISTEN: '9464' }])(
    '%j is refused with the name of the variable',
    (environment) => {
      expect(() => read(environment)).toThrow(ConfigError);
      expect(() => read(environment)).toThrow(Object.keys(environment)[0]);
    },
  );

  test('a port for metrics that is taken is said with the name of the variable', async () => {
    const collector = await startCollector();
    const taken = new URL(collector.url).host;
    await expect(startMetricsServer(taken)).rejects.toThrow(ConfigError);
    await expect(startMetricsServer(taken)).rejects.toThrow(`METRICS_LISTEN: ${taken} cannot be taken (EADDRINUSE)`);
    await collector.stop();
  });

  test('the trace of an event goes through Kafka with it', () => {
    const event: Event = {
      position: { epoch: '1', xid: '2', pos: '3' },
      topic: 'usage',
      key: 'k',
      aggregateId: 'a',
      aggregateSequence: '1',
      type: 'x',
      payload: Buffer.from('{}'),
      at: '2026-01-01T00:00:00.000Z',
      id: '0190a5c6-0000-7000-8000-000000000000',
      signatures: 'a.b',
    };
    const through = (sent: Event) => toEvent({ ...toMessage(sent, 'topic'), offset: 0n });
    expect(through(event)).toEqual(event);
    expect(through({ ...event, trace: sampled })).toEqual({ ...event, trace: sampled });
  });
});

describe('metrics', () => {
  test('count on from one scrape to the next', async () => {
    const counter = counters({ name: 'scraped_total', help: 'Of a test.', labels: [] }).with();
    const gauge = gauges({ name: 'scraped_level', help: 'Of a test.', labels: [] }).with();
    const scrape = async () => (await renderMetrics()).split('\n').filter((line) => /^scraped_/.test(line));
    expect(await scrape()).toEqual(['scraped_total 0', 'scraped_level 0']);
    counter.inc(3);
    gauge.inc(2);
    expect(await scrape()).toEqual(['scraped_total 3', 'scraped_level 2']);
    expect(await scrape()).toEqual(['scraped_total 3', 'scraped_level 2']);
    counter.inc();
    gauge.dec();
    expect(await scrape()).toEqual(['scraped_total 4', 'scraped_level 1']);
  });

  test('are told in the format of Prometheus: names and labels, buckets that add up, texts with what must be escaped', async () => {
    const family = (name: string, ...labels: string[]) => ({ name, help: 'Of a test.', labels });
    counters(family('test_requests_total', 'method', 'route'))
      .with('GET', '/a"b\\c\nd')
      .inc(3);
    gauges(family('test_in_flight')).with().set(2);
    const durations = histograms(family('test_duration_seconds', 'method'), [0.1, 1]).with('GET');
    for (const seconds of [0.05, 0.1, 0.5, 7]) durations.observe(seconds);
    const remove = addSource({
      families: [{ ...family('test_asked', 'who'), type: 'gauge' }],
      collect: async () => ({ test_asked: [[['x'], 1.5]] }),
    });
    const removeFailing = addSource({
      families: [{ ...family('test_away'), type: 'gauge' }],
      collect: () => Promise.reject(new Error('the database is away')),
    });
    const text = await renderMetrics();
    remove();
    removeFailing();
    const lines = text.split('\n').filter((line) => /^(# \w+ )?test_/.test(line));
    expect(lines).toEqual([
      '# HELP test_requests_total Of a test.',
      '# TYPE test_requests_total counter',
      'test_requests_total{method="GET",route="/a\\"b\\\\c\\nd"} 3',
      '# HELP test_in_flight Of a test.',
      '# TYPE test_in_flight gauge',
      'test_in_flight 2',
      '# HELP test_duration_seconds Of a test.',
      '# TYPE test_duration_seconds histogram',
      'test_duration_seconds_bucket{le="0.1",method="GET"} 2',
      'test_duration_seconds_bucket{le="1",method="GET"} 3',
      'test_duration_seconds_bucket{le="+Inf",method="GET"} 4',
      'test_duration_seconds_sum{method="GET"} 7.65',
      'test_duration_seconds_count{method="GET"} 4',
      '# HELP test_asked Of a test.',
      '# TYPE test_asked gauge',
      'test_asked{who="x"} 1.5',
    ]);
    expect(text.endsWith('\n')).toBe(true);
    expect(await renderMetrics()).not.toContain('test_asked');
  });
});
