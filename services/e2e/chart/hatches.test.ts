import path from 'node:path';
import { describeWith } from '@granary/testing/stack';
import { serviceNames } from '@granary/shared/trust/services';
import {
  buildTimeoutMs,
  chart,
  containersOf,
  minimalValues,
  ofKind,
  podOf,
  readText,
  render,
  type PodSpec,
  type Resource,
} from './chart';

const values = path.join(chart, 'ci/hatches-values.yaml');
const digest = `sha256:${'0123456789abcdef'.repeat(4)}`;

interface Template {
  metadata: { labels: Record<string, string>; annotations: Record<string, string> };
  spec: PodSpec & Record<string, unknown>;
}

const component = 'app.kubernetes.io/component';

describeWith(describe, 'helm')('the hatches of charts/granary, by ci/hatches-values.yaml', () => {
  let resources: Resource[];
  beforeAll(async () => {
    resources = await render(values);
  }, buildTimeoutMs);

  const named = (kind: string, name: string) =>
    ofKind(resources, kind).find(({ metadata }) => metadata.name === `granary-${name}`)!;
  const templateOf = (service: string) => named('Deployment', service).spec['template'] as Template;
  const rules = (name: string, direction: 'ingress' | 'egress') => named('NetworkPolicy', name).spec[direction];

  test('every image is from the global registry, ours by its digest, and pulled with the named credentials', () => {
    const pods = resources.filter((each) => podOf(each) !== undefined);
    expect(pods.length).toBeGreaterThanOrEqual(serviceNames.length + 4);
    for (const resource of pods) {
      expect(podOf(resource)).toMatchObject({ imagePullSecrets: [{ name: 'registry-key' }] });
      for (const { image, name } of containersOf(resource)) {
        expect({ name, image }).toEqual({ name, image: expect.stringMatching(/^registry\.example\.com\//) as unknown });
        if (name === 'gateway' || name === 'smoke') {
          expect(image).toBe(`registry.example.com/storage/granary@${digest}`);
        }
      }
    }
    const [backup] = containersOf(named('CronJob', 'backup'));
    expect(backup).toMatchObject({ image: 'registry.example.com/storage/postgres:18' });
    expect(containersOf(named('Deployment', 'data'))[0]).toMatchObject({ imagePullPolicy: 'Always' });
  });

  test('without a global registry an image is from its own, and has the version of the chart as its tag', async () => {
    const image = { registry: 'registry.example.com', repository: 'storage/granary' };
    const version = /^appVersion: (.+)$/m.exec(await readText('charts/granary/Chart.yaml'))![1];
    for (const [tag, expected] of [
      ['', version],
      ['1.2.3', '1.2.3'],
    ] as const) {
      const [first] = ofKind(await render(minimalValues, { image: { ...image, tag } }), 'Deployment');
      expect(containersOf(first!)[0]!.image).toBe(`registry.example.com/storage/granary:${expected}`);
    }
  });

  test('each pod of a service is scheduled as defaults say, unless its component says otherwise', () => {
    for (const service of serviceNames) {
      const { spec } = templateOf(service);
      expect(spec).toMatchObject({
        priorityClassName: service === 'data' ? 'most-important' : 'important',
        runtimeClassName: 'gvisor',
        nodeSelector: { disk: 'fast' },
        tolerations: [{ key: 'dedicated', operator: 'Exists' }],
        affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: expect.anything() as unknown } },
      });
      expect(spec.topologySpreadConstraints).toEqual([
        {
          maxSkew: 1,
          topologyKey: 'topology.kubernetes.io/zone',
          whenUnsatisfiable: 'DoNotSchedule',
          labelSelector: { matchLabels: { 'app.kubernetes.io/instance': 'granary' } },
        },
      ]);
    }
  });

  test('each pod of a Job and of helm test is placed as defaults say, unless jobs says otherwise', () => {
    const pods = [...resources.filter(({ kind }) => ['Job', 'CronJob', 'Pod'].includes(kind))];
    expect(pods.map(({ metadata }) => metadata.name).sort()).toEqual([
      'granary-backup',
      expect.stringMatching(/^granary-migrate-1-/),
      'granary-restore',
      'granary-test',
    ]);
    for (const pod of pods) {
      expect(podOf(pod)).toMatchObject({
        priorityClassName: 'urgent',
        runtimeClassName: 'gvisor',
        tolerations: [{ key: 'dedicated', operator: 'Exists' }],
        affinity: { nodeAffinity: expect.anything() as unknown },
      });
      expect(podOf(pod)).not.toHaveProperty('nodeSelector');
    }
    const annotations = { 'sidecar.istio.io/inject': 'false', 'example.com/owner': 'storage' };
    expect(named('Pod', 'test').metadata.annotations).toMatchObject(annotations);
    const [migrate] = ofKind(resources, 'Job');
    expect((migrate!.spec['template'] as Template).metadata.annotations).toEqual(annotations);
    expect(named('ServiceAccount', 'jobs').metadata.annotations).toMatchObject({ 'example.com/role': 'granary-jobs' });
  });

  test('sidecars and init containers are beside the container of the service, which stays the first and the default', () => {
    const { metadata, spec } = templateOf('gateway');
    expect(spec.containers.map(({ name }) => name)).toEqual(['gateway', 'agent']);
    expect(metadata.annotations['kubectl.kubernetes.io/default-container']).toBe('gateway');
    expect(templateOf('data').spec.initContainers!.map(({ name }) => name)).toEqual(['warm-up']);
    expect(templateOf('tasks').spec).not.toHaveProperty('initContainers');
    expect(templateOf('tasks').spec.containers).toHaveLength(1);
  });

  test('settings come from ConfigMaps and Secrets too, of the component or of all; and files from further volumes', () => {
    const from = (service: string) => (templateOf(service).spec.containers[0] as { envFrom?: unknown }).envFrom;
    expect(from('gateway')).toEqual([{ secretRef: { name: 'gateway-settings' } }]);
    for (const service of ['data', 'blobs', 'finance', 'payments', 'tasks']) {
      expect(from(service)).toEqual([{ configMapRef: { name: 'granary-settings' } }]);
    }
    const { spec } = templateOf('data');
    expect(spec.volumes).toContainEqual({ name: 'countries', configMap: { name: 'countries' } });
    expect(spec.containers[0]!.volumeMounts).toContainEqual({ name: 'countries', mountPath: '/etc/countries' });
  });

  test('labels and annotations are where their readers look: of Deployment, of pod, of all, of the Service, of the account', () => {
    expect(named('Deployment', 'tasks').metadata.annotations).toEqual({
      'reloader.stakater.com/auto': 'true',
      'example.com/owner': 'storage',
    });
    const { metadata } = templateOf('tasks');
    expect(metadata.annotations).toMatchObject({ 'example.com/scrape': 'no', 'example.com/owner': 'storage' });
    expect(metadata.labels).toMatchObject({ tier: 'backend', team: 'storage', [component]: 'tasks' });
    expect(named('ServiceAccount', 'tasks').metadata.annotations).toMatchObject({ 'example.com/role': 'granary' });
    const service = named('Service', 'gateway');
    expect(service.spec).toMatchObject({ type: 'LoadBalancer', ports: [{ port: 8080, targetPort: 'http' }] });
    expect(service.metadata.annotations).toMatchObject({ 'example.com/internal': 'true' });
    expect(named('Service', 'data').metadata.annotations).toEqual({ 'example.com/owner': 'storage' });
    for (const { metadata: each } of resources) expect(each.labels).toMatchObject({ team: 'storage' });
  });

  test('further rules of network policies are those of the named pods only', () => {
    const debugging = {
      ports: [{ port: 9999, protocol: 'TCP' }],
      from: [{ podSelector: { matchLabels: { role: 'debugger' } } }],
    };
    const further = { gateway: { port: 5170, protocol: 'TCP' }, jobs: { port: 6432, protocol: 'TCP' } };
    for (const { metadata } of ofKind(resources, 'NetworkPolicy')) {
      const name = metadata.name.replace('granary-', '');
      const ingress = rules(name, 'ingress') ?? [];
      expect((ingress as unknown[]).filter((rule) => JSON.stringify(rule).includes('9999'))).toEqual(
        name === 'data' ? [debugging] : [],
      );
      for (const [owner, port] of Object.entries(further)) {
        const found = (rules(name, 'egress') as Array<{ ports: unknown[] }>).filter(({ ports }) =>
          JSON.stringify(ports).includes(`:${port.port},`),
        );
        expect({ name, found }).toEqual({ name, found: name === owner ? [{ ports: [port] }] : [] });
      }
    }
  });

  test('a release has names of its own where they are wanted', async () => {
    for (const [overrides, full] of [
      [{ nameOverride: 'store' }, 'granary-store'],
      [{ fullnameOverride: 'store' }, 'store'],
    ] as const) {
      const found = await render(minimalValues, overrides);
      const names = found.map(({ metadata }) => metadata.name);
      expect(names.filter((name) => !name.startsWith(`${full}-`))).toEqual([]);
      expect(JSON.stringify(found)).toContain(`dns:///${full}-finance:5000`);
    }
  });
});
