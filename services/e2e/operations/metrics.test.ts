import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { newApp, type TestApp } from '../support/granary';
import { startGranaryHere, type OwnGranary } from '../support/own-granary';

const root = join(__dirname, '../../..');
/** Prometheus itself gives these to all that it scrapes. */
const ofPrometheus = ['job', 'instance'];

interface Dashboard {
  panels: Array<{
    title: string;
    targets?: Array<{ expr: string; legendFormat: string }>;
    fieldConfig?: { defaults: { unit?: string } };
  }>;
}

/** The names of the labels of each series, by the name of the series. */
function readScrape(text: string): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const line of text.split('\n').filter((each) => each !== '' && !each.startsWith('#'))) {
    const [, name, labels = '', value] = /^([a-z_0-9]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (!name || !Number.isFinite(Number(value))) throw new Error(`not a sample: ${line}`);
    const names = found.get(name) ?? new Set();
    found.set(name, names);
    for (const [, label] of labels.matchAll(/([a-z_]+)="/g)) names.add(label!);
  }
  return found;
}

const metricsIn = (expr: string) =>
  [...expr.matchAll(/\b((?:granary|process|nodejs)_[a-z0-9_]+)/g)].map(([, name]) => name!);

/** Those that it picks by, groups by and shows. */
function labelsIn(expr: string, legend: string): string[] {
  const picked = [...expr.matchAll(/([a-z_]+)(?:=~|!=|!~|=)"/g)].map(([, name]) => name!);
  const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, names]) => names!.split(', '));
  const shown = [...legend.matchAll(/\{\{([a-z_]+)\}\}/g)].map(([, name]) => name!);
  return [...picked, ...grouped, ...shown];
}

describe('metrics', () => {
  let granary: OwnGranary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await startGranaryHere('wire', { metrics: true });
    app = await newApp(granary);
    await app.store('measured', [{ n: 1 }]);
    await app.list('measured');
  });
  afterAll(() => granary.stop());

  const scrapeOne = async (address: string) => {
    const answer = await fetch(`http://${address}/metrics`);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    return answer.text();
  };
  /** What all processes tell. */
  const scrape = async () => {
    expect(granary.metricsAddresses).not.toEqual([]);
    return (await Promise.all(granary.metricsAddresses.map(scrapeOne))).join('\n');
  };
  const valueOf = (text: string, series: string) =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.slice(series.length + 1) ?? NaN,
    );

  /** A scrape after events have been applied and a read has gone through the multiplexer. */
  const fullScrape = () =>
    eventually(async () => {
      const text = await scrape();
      return text.includes('granary_bus_event_delay_seconds_count{consumer="finance-data"') ? text : undefined;
    });

  it('every metric and label of the dashboard is exported by a running Granary', async () => {
    const told = readScrape(await fullScrape());
    const file = await readFile(join(root, 'charts/granary/files/dashboard.json'), 'utf8');
    const targets = (JSON.parse(file) as Dashboard).panels.flatMap(({ targets: each = [] }) => each);
    expect(targets.length).toBeGreaterThan(20);
    for (const { expr, legendFormat } of targets) {
      const metrics = metricsIn(expr);
      expect({ expr, metrics: metrics.length }).not.toEqual({ expr, metrics: 0 });
      for (const metric of metrics) {
        const known = [...(told.get(metric) ?? []), ...ofPrometheus];
        expect({ expr, missing: told.has(metric) ? [] : [metric] }).toEqual({ expr, missing: [] });
        const missing = labelsIn(expr, legendFormat).filter((label) => !known.includes(label));
        expect({ expr, metric, missing }).toEqual({ expr, metric, missing: [] });
      }
    }
  });

  it('every metric and label of the alerts is exported by a running Granary', async () => {
    const told = readScrape(await fullScrape());
    const file = await readFile(join(root, 'charts/granary/files/alerts.yaml'), 'utf8');
    const alerts = file.split(/^ +- alert: /m).slice(1);
    expect(alerts.length).toBeGreaterThan(10);
    for (const alert of alerts) {
      const [, expr = ''] = /^ +expr: (.+)$/m.exec(alert) ?? [];
      const metrics = metricsIn(expr);
      expect({ alert, metrics }).not.toEqual({ alert, metrics: expr.startsWith('up{') ? undefined : [] });
      const missing = metrics.filter((metric) => !told.has(metric));
      expect({ expr, missing }).toEqual({ expr, missing: [] });
      const known = [...metrics.flatMap((metric) => [...told.get(metric)!]), ...ofPrometheus];
      const shown = [...alert.matchAll(/\$labels\.([a-z_]+)/g)].map(([, name]) => name!);
      const unknown = [...labelsIn(expr, ''), ...shown].filter((label) => !known.includes(label));
      expect({ expr, unknown }).toEqual({ expr, unknown: [] });
    }
  });

  it('each ratio on the dashboard has a panel of its own, in percent', async () => {
    const file = await readFile(join(root, 'charts/granary/files/dashboard.json'), 'utf8');
    const { panels } = JSON.parse(file) as Dashboard;
    const isShare = (expr: string) => /utilization|used_bytes.*\/.*limit_bytes|5\.\..*\/ sum/.test(expr);
    const withShares = panels.filter(({ targets = [] }) => targets.some(({ expr }) => isShare(expr)));
    expect(withShares.length).toBe(3);
    for (const { title, targets = [], fieldConfig } of withShares) {
      expect({ title, all: targets.every(({ expr }) => isShare(expr)), unit: fieldConfig?.defaults.unit }).toEqual({
        title,
        all: true,
        unit: 'percentunit',
      });
    }
  });

  it('every exported metric is in the documentation, with its labels', async () => {
    const docs = await readFile(join(root, 'docs/operations/observe.md'), 'utf8');
    const text = await fullScrape();
    const told = readScrape(text);
    const families = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => ({
      name: name!,
      type: type!,
    }));
    expect(families.length).toBeGreaterThan(20);
    for (const { name, type } of families) {
      const row = docs.split('\n').find((line) => line.startsWith(`| \`${name}\` `));
      const cells = row?.split('|').map((cell) => cell.trim()) ?? [];
      const labels = told.get(type === 'histogram' ? `${name}_sum` : name);
      expect({ name, type: cells[2] }).toEqual({ name, type });
      // A counter with labels has no samples, and so shows none of them, before it has counted anything.
      if (labels)
        expect({ name, labels: cells[3] }).toEqual({
          name,
          labels: [...labels].map((label) => `\`${label}\``).join(', '),
        });
      else expect({ name, type }).toEqual({ name, type: 'counter' });
    }
  });

  it('requests are counted by the template of their route and by status, and no user input is a label', async () => {
    const series = (method: string, route: string, status: number) =>
      `granary_http_requests_total{method="${method}",route="${route}",status="${status}"}`;
    const before = await scrape();
    const path = `/apps/${app.appId}/collections/measured`;
    expect((await app.call('GET', path)).status).toBe(200);
    expect((await app.call('GET', `${path}-not`)).status).toBe(404);
    expect((await app.call('GET', '/nothing/here')).status).toBe(404);
    const after = await eventually(async () => {
      const text = await scrape();
      return valueOf(text, series('GET', 'none', 404)) > 0 ? text : undefined;
    });
    const template = '/apps/{app_id}/collections/{collection}';
    for (const status of [200, 404]) {
      const counted = valueOf(after, series('GET', template, status));
      expect(counted - (valueOf(before, series('GET', template, status)) || 0)).toBe(1);
    }
    expect(valueOf(after, `granary_http_request_duration_seconds_count{method="GET",route="${template}"}`)).toBe(2);
    expect(after).not.toContain(app.appId);
    expect(after).not.toContain('measured');
    expect(after).not.toContain('nothing/here');
  });

  it('a call over the wire is counted at both ends, with its code', async () => {
    const series = (direction: string) =>
      `granary_rpc_requests_total{method="granary.data.v1.Data/GetCollection",direction="${direction}",code="NOT_FOUND"}`;
    const before = await scrape();
    expect((await app.call('GET', `/apps/${app.appId}/collections/absent`)).status).toBe(404);
    const after = await scrape();
    for (const direction of ['server', 'client']) {
      expect(valueOf(after, series(direction)) - (valueOf(before, series(direction)) || 0)).toBe(1);
    }
    expect(valueOf(after, 'granary_http_in_flight')).toBe(0);
  });

  it('the metrics port serves nothing else, and the API does not serve metrics', async () => {
    for (const address of granary.metricsAddresses) {
      expect((await fetch(`http://${address}/`)).status).toBe(404);
      expect((await fetch(`http://${address}/metrics`, { method: 'POST' })).status).toBe(405);
      const head = await fetch(`http://${address}/metrics`, { method: 'HEAD' });
      expect([head.status, head.headers.get('content-type'), await head.text()]).toEqual([
        200,
        expect.stringContaining('text/plain'),
        '',
      ]);
    }
    expect((await fetch(`${granary.url}/metrics`)).status).toBe(404);
  });
});
