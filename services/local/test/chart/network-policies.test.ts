import { describeWith } from '@granary/shared/testing/stack';
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
    const reaches = (port: number) =>
      ofKind(rendered, 'NetworkPolicy')
        .filter(({ spec }) =>
          ((spec as unknown as Policy).egress ?? []).some(({ ports }) => ports.some((one) => one.port === port)),
        )
        .map(({ metadata }) => metadata.name.replace('granary-', ''))
        .sort();
    const withDatabase = ['blobs', 'data', 'finance', 'jobs', 'payments', 'tasks'];
    expect(reaches(5432)).toEqual(withDatabase);
    expect(reaches(9092)).toEqual(withDatabase);
    expect(reaches(9094)).toEqual(withDatabase);
    expect(reaches(9000)).toEqual(['blobs']);
  });
});
