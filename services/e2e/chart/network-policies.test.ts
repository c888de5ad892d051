import { describeWith } from '@granary/testing/stack';
import { callersOf, serviceNames } from '@granary/shared/trust/services';
import { buildTimeoutMs, minimalValues, ofKind, podOf, render, type Resource } from './chart';

interface Rule {
  from?: Array<{ podSelector?: { matchLabels: Record<string, string> } }>;
  to?: Array<{ podSelector?: { matchLabels: Record<string, string> } }>;
  ports: Array<{ port: number }>;
}

interface Policy {
  podSelector: { matchLabels: Record<string, string> };
  policyTypes: string[];
  ingress?: Rule[] | null;
  egress?: Rule[] | null;
}

const component = 'app.kubernetes.io/component';
const peers = (rule: Rule, side: 'from' | 'to') =>
  (rule[side] ?? []).flatMap(({ podSelector }) => podSelector?.matchLabels[component] ?? []);

describeWith(describe, 'helm')('the network policies', () => {
  let resources: Resource[];
  let policies: Policy[];
  beforeAll(async () => {
    resources = await render(minimalValues);
    policies = ofKind(resources, 'NetworkPolicy').map(({ spec }) => spec as unknown as Policy);
  }, buildTimeoutMs);
  const policyOf = (name: string) => policies.find((each) => each.podSelector.matchLabels[component] === name)!;

  test('a service may be called at its gRPC port by its callers and nobody else', () => {
    for (const callee of serviceNames.filter((name) => name !== 'gateway')) {
      const { ingress } = policyOf(callee);
      const rules = ingress!.filter(({ ports }) => ports.some(({ port }) => port === 5000));
      expect(rules.every(({ from }) => from !== undefined && from.length > 0)).toBe(true);
      expect({ callee, callers: rules.flatMap((rule) => peers(rule, 'from')).sort() }).toEqual({
        callee,
        callers: [...callersOf[callee]].sort(),
      });
      expect(ingress).toHaveLength(rules.length);
    }
  });

  test('a service may call those that accept its calls, and no other pod', () => {
    for (const caller of serviceNames) {
      const called = policyOf(caller).egress!.flatMap((rule) => peers(rule, 'to'));
      const callees = serviceNames.filter((callee) => callersOf[callee].includes(caller));
      expect({ caller, callees: called.sort() }).toEqual({ caller, callees: callees.sort() });
    }
  });

  test('the contents of blobs are transferred to the gateway only', () => {
    const rules = policyOf('blobs').ingress!.filter(({ ports }) => ports.some(({ port }) => port === 5001));
    expect(rules.flatMap((rule) => peers(rule, 'from'))).toEqual(['gateway']);
  });

  test('every pod has a policy of both directions, and may ask for names', () => {
    const components = new Set<string>();
    for (const each of resources.filter((one) => podOf(one) !== undefined)) {
      const { metadata, spec } = each;
      const template = spec['template'] as { metadata: { labels: Record<string, string> } } | undefined;
      components.add((template?.metadata ?? metadata).labels[component]!);
    }
    expect([...components].sort()).toEqual(['jobs', 'test', ...serviceNames].sort());
    for (const name of components) {
      expect(policyOf(name).policyTypes).toEqual(['Ingress', 'Egress']);
      expect(policyOf(name).egress!.flatMap(({ ports }) => ports.map(({ port }) => port))).toContain(53);
    }
  });

  test('Postgres, Kafka and the object store are reached by those that use them', async () => {
    const kafka = { enabled: true, brokers: ['a:9092', 'b:9094'] };
    const objectStorage = { endpoint: 'http://minio:9000' };
    const rendered = await render(minimalValues, { kafka, objectStorage });
    const reaches = (port: number, chart = rendered) =>
      ofKind(chart, 'NetworkPolicy')
        .filter(({ spec }) =>
          ((spec as unknown as Policy).egress ?? []).some(({ ports }) => ports.some((one) => one.port === port)),
        )
        .map(({ metadata }) => metadata.name.replace('granary-', ''))
        .sort();
    const withDatabase = ['blobs', 'data', 'finance', 'jobs', 'payments', 'tasks'];
    expect(reaches(5432)).toEqual(withDatabase);
    expect(reaches(9092)).toEqual(withDatabase);
    expect(reaches(9094)).toEqual(withDatabase);
    expect(reaches(9000)).toEqual(['blobs', 'gateway']);
    const withoutDirectReads = await render(minimalValues, { objectStorage: { ...objectStorage, directReads: false } });
    expect(reaches(9000, withoutDirectReads)).toEqual(['blobs']);
  });

  /** The rules that lead out to a port, by the component whose they are. */
  const leadingTo = (rendered: Resource[], port: number) =>
    Object.fromEntries(
      ofKind(rendered, 'NetworkPolicy').flatMap(({ metadata, spec }) => {
        const rules = (spec as unknown as Policy).egress ?? [];
        const found = rules.filter(({ ports }) => ports.some((one) => one.port === port));
        return found.length === 0 ? [] : [[metadata.name.replace('granary-', ''), found.map(({ to }) => to)]];
      }),
    );
  const monitoring = [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'monitoring' } } }];

  test('traces reach the collector that the settings of a component or of all name', async () => {
    const rendered = await render(minimalValues, {
      defaults: { env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector.monitoring:4318' } },
      components: {
        tasks: { env: { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://user:key@traces.example.com/v1/traces' } },
      },
      networkPolicy: { otlpTo: monitoring },
    });
    expect(leadingTo(rendered, 4318)).toEqual(Object.fromEntries(serviceNames.map((name) => [name, [monitoring]])));
    expect(leadingTo(rendered, 443)).toEqual({ blobs: [undefined], gateway: [undefined], tasks: [monitoring] });
    const address = {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4317',
      OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: 'http://[::1]',
    };
    const without = await render(minimalValues, { components: { data: { env: address } } });
    expect(leadingTo(without, 4317)).toEqual({ data: [undefined] });
    expect(leadingTo(without, 80)).toEqual({ data: [undefined] });
  });

  test('payments and finance reach the nodes of their chains, whose ports are in the URLs or in the values', async () => {
    const networkPolicy = { chainTo: monitoring, chainPorts: [26657] };
    const nodes = {
      EVM_RPC_URLS: 'eip155:8453=http://node:8545/v1?key=a=b, eip155:84532=https://base.example.com',
      SOLANA_RPC_URLS: 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp=https://sol:8899',
    };
    const X402_KEY_FILE = '/etc/x402/seed';
    const portsOf = async (payments: Record<string, unknown>, chain = {}) => {
      const rendered = await render(minimalValues, { components: { payments }, chain, networkPolicy });
      return Object.fromEntries(
        ofKind(rendered, 'NetworkPolicy').flatMap(({ metadata, spec }) => {
          const rules = (spec as unknown as Policy).egress!.filter(
            ({ to }) => JSON.stringify(to) === JSON.stringify(monitoring),
          );
          const ports = rules.flatMap((rule) => rule.ports.map(({ port }) => port));
          return ports.length === 0 ? [] : [[metadata.name.replace('granary-', ''), ports]];
        }),
      );
    };
    expect(await portsOf({ env: { X402_KEY_FILE, ...nodes } })).toEqual({ payments: [8545, 443, 8899] });
    const extraEnvFrom = [{ secretRef: { name: 'x402-nodes' } }];
    expect(await portsOf({ env: { X402_KEY_FILE }, extraEnvFrom })).toEqual({ payments: [26657] });
    expect(await portsOf({ env: { X402_KEY_FILE, EVM_RPC_URLS_FILE: '/etc/x402/nodes' } })).toEqual({
      payments: [26657],
    });
    expect(await portsOf({ extraEnvFrom })).toEqual({});
    const chain = { kind: 'cosmos', id: 'celestia', existingSecret: 'nodes' };
    expect(await portsOf({}, chain)).toEqual({ finance: [26657] });
  });

  test('the Jobs before an upgrade have a policy of this release, while that of the release is still the one before', async () => {
    const kafka = { enabled: true, brokers: ['kafka:9093'] };
    const rendered = await render(minimalValues, { kafka }, ['--is-upgrade']);
    const ofJobs = ofKind(rendered, 'NetworkPolicy').filter(
      ({ spec }) => (spec as unknown as Policy).podSelector.matchLabels[component] === 'jobs',
    );
    const [plain, hook] = ofJobs;
    expect(ofJobs.map(({ metadata }) => metadata.name)).toEqual(['granary-jobs', 'granary-jobs-hook']);
    expect(plain!.metadata.annotations).toBeUndefined();
    expect(hook!.metadata.annotations).toEqual({
      'helm.sh/hook': 'pre-upgrade',
      'helm.sh/hook-weight': '-1',
      'helm.sh/hook-delete-policy': 'before-hook-creation,hook-succeeded',
    });
    expect(hook!.spec).toEqual(plain!.spec);
    for (const { metadata } of ofKind(rendered, 'Job')) {
      expect(Number(metadata.annotations!['helm.sh/hook-weight'])).toBeGreaterThan(-1);
    }
    const hookless: Array<[Record<string, unknown>, string[]]> = [
      [{}, []],
      [{ migrations: { useHelmHooks: false } }, ['--is-upgrade']],
    ];
    for (const [values, args] of hookless) {
      expect(JSON.stringify(await render(minimalValues, values, args))).not.toContain('jobs-hook');
    }
  });
});
