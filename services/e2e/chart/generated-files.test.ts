import { describeWith } from '@granary/testing/stack';
import { callersOf } from '@granary/shared/trust/services';
import { parse as parseYaml } from 'yaml';
import { buildTimeoutMs, chart, minimalValues, ofKind, parse, readText, render, runChartTool, template } from './chart';

interface Alerts {
  groups: Array<{ rules: Array<{ alert: string; expr: string; annotations: Record<string, string> }> }>;
}

const alertsOf = (text: string) => (parseYaml(text) as Alerts).groups.flatMap(({ rules }) => rules);

test('the callers in the chart are those of the services (npm run chart)', async () => {
  expect(parseYaml(await readText('charts/granary/files/callers.yaml'))).toEqual(callersOf);
});

test('every alert has a runbook, and every runbook an alert', async () => {
  const alerts = alertsOf(await readText('charts/granary/files/alerts.yaml')).map(({ alert }) => alert);
  const runbooks = await readText('docs/operations/runbooks.md');
  // The last one is the chart's own.
  expect([...runbooks.matchAll(/^## (Granary\w+)$/gm)].map(([, name]) => name)).toEqual([
    ...alerts,
    'GranaryBackupOld',
  ]);
  for (const section of runbooks.split(/^## /m).slice(1)) {
    expect(section).toMatch(/\*\*Means\*\*[^]+\*\*Look\*\*[^]+\*\*Do\*\*/);
  }
});

describeWith(describe, 'helm')('the generated parts of charts/granary', () => {
  test(
    'the README is what helm-docs makes of the values (npm run chart)',
    async () => {
      const args = ['--chart-search-root', chart, '--dry-run', '--log-level', 'error'];
      const { output } = await runChartTool('helm-docs', args);
      expect(output.trim()).toBe((await readText('charts/granary/README.md')).trim());
    },
    buildTimeoutMs,
  );

  test('each alert of the PrometheusRule is one of its file, with the address of its runbook', async () => {
    const metrics = { prometheusRule: { enabled: true, runbookUrl: 'https://wiki.example/runbooks' } };
    const [rule] = ofKind(await render(minimalValues, { metrics }), 'PrometheusRule');
    const rendered = (rule!.spec as unknown as Alerts).groups.flatMap(({ rules }) => rules);
    const expected = alertsOf(await readText('charts/granary/files/alerts.yaml')).map((each) => ({
      ...each,
      annotations: {
        ...each.annotations,
        runbook_url: `https://wiki.example/runbooks#${each.alert.toLowerCase()}`,
      },
    }));
    expect(rendered).toEqual(expected);
  });

  test('with backups there is an alert of their own, for the CronJob that the chart makes', async () => {
    const metrics = { prometheusRule: { enabled: true, runbookUrl: 'https://wiki.example/runbooks' } };
    const backup = {
      enabled: true,
      existingClaim: 'dumps',
      alertAge: 7_200,
      image: { repository: 'storage/postgres' },
    };
    const resources = await render(minimalValues, { metrics, backup });
    const [rule] = ofKind(resources, 'PrometheusRule');
    const { alert, expr, annotations } = (rule!.spec as unknown as Alerts).groups.at(-1)!.rules[0]!;
    expect(alert).toBe('GranaryBackupOld');
    expect(annotations['runbook_url']).toBe('https://wiki.example/runbooks#granarybackupold');
    expect(expr).toContain('> 7200');
    const named = [...expr.matchAll(/(kube_cronjob_\w+)\{namespace="(\w+)", cronjob="([\w-]+)"\}/g)];
    expect(named.map(([, metric]) => metric)).toEqual([
      'kube_cronjob_status_last_successful_time',
      'kube_cronjob_created',
      'kube_cronjob_spec_suspend',
    ]);
    const cronJobs = ofKind(resources, 'CronJob').map(({ metadata: { namespace, name } }) => `${namespace}/${name}`);
    for (const [, , namespace, name] of named) expect(cronJobs).toContain(`${namespace}/${name}`);
  });

  test('the ServiceMonitors scrape each service, as a job that the alerts know', async () => {
    const values = {
      metrics: { serviceMonitor: { enabled: true }, dashboard: { enabled: true } },
      networkPolicy: { metricsFrom: [{ namespaceSelector: {} }] },
    };
    const resources = await render(minimalValues, values);
    const jobs = ofKind(resources, 'ServiceMonitor').map(({ spec }) => JSON.stringify(spec));
    expect(jobs).toHaveLength(Object.keys(callersOf).length);
    for (const job of jobs) expect(job).toMatch(/"replacement":"granary-[a-z]+"/);
    const dashboard = ofKind(resources, 'ConfigMap').find(({ metadata }) => metadata.name === 'granary-dashboard');
    expect(JSON.parse(dashboard!.data!['granary.json']!)).toEqual(
      JSON.parse(await readText('charts/granary/files/dashboard.json')),
    );
  });

  test('the notes name resources that exist', async () => {
    const args = ['install', 'granary', chart, '--dry-run=client', '--namespace', 'apps', '--values', minimalValues];
    const backup = ['--set', 'backup.enabled=true,backup.existingClaim=dumps,postgres.tls.caSecret=ca'];
    const { output } = await runChartTool('helm', [...args, ...backup]);
    const notes = output.slice(output.indexOf('NOTES:'));
    const rendered = await template([minimalValues], backup);
    const names = parse(rendered.output).map(({ kind, metadata }) => `${kind.toLowerCase()}/${metadata.name}`);
    const named = [...notes.matchAll(/\b(service|cronjob)\/([a-z-]+)/g)].map(([whole]) => whole);
    expect(named).toHaveLength(2);
    for (const name of named) expect(names).toContain(name);
    expect(notes).toContain('helm test granary --namespace apps');
  });

  test('the notes warn of an Ingress whose controller has its own limits', async () => {
    const notesWith = async (...values: string[]) => {
      const args = ['install', 'granary', chart, '--dry-run=client', '--values', minimalValues];
      const { code, output } = await runChartTool('helm', [...args, ...values.flatMap((each) => ['--set', each])]);
      if (code !== 0) throw new Error(output);
      return output.slice(output.indexOf('NOTES:'));
    };
    const ingress = ['ingress.enabled=true', 'ingress.hosts={api.example.com}'];
    const warning = 'The Ingress has no annotations';
    expect(await notesWith(...ingress)).toContain(warning);
    expect(await notesWith(...ingress, 'ingress.annotations.a=b')).not.toContain(warning);
    expect(await notesWith()).not.toContain(warning);
  });
});
