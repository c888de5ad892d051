import { describeWith } from '@granary/testing/stack';
import { eventually } from '@granary/testing/eventually';
import { newApp } from '../support/granary';
import { startGranaryHere, type OwnGranary } from '../support/own-granary';
import { buildTimeoutMs, minimalValues, ofKind, render } from './chart';

/** The services that apply events of others. */
const scaled = ['blobs', 'finance', 'tasks'];

interface Trigger {
  metadata: { query: string };
}

describeWith(describe, 'helm')('scaling by the age of events', () => {
  let granary: OwnGranary;
  beforeAll(async () => {
    granary = await startGranaryHere('wire', { metrics: true });
    const app = await newApp(granary);
    await app.store('measured', [{ n: 1 }]);
  }, buildTimeoutMs);
  afterAll(() => granary.stop());

  const scrape = async (): Promise<string> => {
    const answers = granary.metricsAddresses.map(async (address) => (await fetch(`http://${address}/metrics`)).text());
    return (await Promise.all(answers)).join('\n');
  };

  test.each(scaled)('the query for %s picks what a running Granary exports of it', async (service) => {
    const keda = { enabled: true, prometheus: 'http://prometheus:9090' };
    const kafka = { enabled: true, brokers: ['kafka:9092'] };
    const [object] = ofKind(
      await render(minimalValues, { kafka, components: { [service]: { keda } } }),
      'ScaledObject',
    );
    const [{ metadata }] = object!.spec['triggers'] as [Trigger];
    const [, metric = '', label = '', pattern = ''] = /^max\(([a-z_]+)\{([a-z]+)=~"([^"]+)"\}\)$/.exec(metadata.query)!;
    // Prometheus matches a whole value.
    const picks = new RegExp(`^(?:${pattern})$`);
    const picked = await eventually(async () => {
      const series = (await scrape()).split('\n').filter((line) => line.startsWith(`${metric}{`));
      const values = series.map((line) => new RegExp(`[{,]${label}="([^"]*)"`).exec(line)?.[1] ?? '');
      const found = values.filter((value) => picks.test(value));
      return found.length > 0 ? found : undefined;
    });
    expect(picked.filter((reader) => reader.split('-')[0] !== service)).toEqual([]);
  });
});
