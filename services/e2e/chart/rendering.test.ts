import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type { z } from 'zod';
import { describeWith } from '@granary/testing/stack';
import { readConfig } from '@granary/shared/config';
import { serviceNames } from '@granary/shared/trust/services';
import { serviceSchemas } from '@granary/local/start/settings';
import {
  buildTimeoutMs,
  chart,
  containersOf,
  expectRestricted,
  minimalValues,
  ofKind,
  podOf,
  readText,
  render,
  runChartTool,
  template,
  valuesFiles,
  type Resource,
} from './chart';
import { writeKubernetesSchemas } from './kubernetes-schemas';

const deployment = (resources: Resource[], service: string) =>
  ofKind(resources, 'Deployment').find(({ metadata }) => metadata.name === `granary-${service}`)!;

describeWith(describe, 'helm')('charts/granary', () => {
  let folder: string;
  let files: string[];
  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'granary-chart-'));
    files = await valuesFiles();
    await writeKubernetesSchemas(folder);
  }, buildTimeoutMs);
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test('every values file passes helm lint --strict', async () => {
    expect(files.length).toBeGreaterThanOrEqual(3);
    for (const file of files) {
      const { code, output } = await runChartTool('helm', ['lint', '--strict', chart, '--values', file]);
      expect({ file, code, output: code === 0 ? '' : output }).toEqual({ file, code: 0, output: '' });
    }
  });

  test.each([
    ['install', []],
    ['upgrade', ['--is-upgrade']],
  ])(
    'every values file renders what the API of Kubernetes accepts, without a critical remark of kube-score: %s',
    async (_, args) => {
      for (const file of files) {
        const rendered = await template([file], args);
        expect({ file, code: rendered.code }).toEqual({ file, code: 0 });
        const manifest = path.join(folder, 'manifest.yaml');
        await writeFile(manifest, rendered.output);
        const location = path.join(folder, '{{.ResourceKind}}{{.KindSuffix}}.json');
        const valid = await runChartTool('kubeconform', ['-schema-location', location, '-summary', manifest]);
        expect(`${file} ${valid.output}`).toMatch(/Valid: [3-9]\d, Invalid: 0, Errors: 0, Skipped: 0/);
        // A limit of CPU would delay requests while processors are idle; an image has a tag of its own for each
        // release.
        const ignored = ['--ignore-container-cpu-limit', '--ignore-test', 'container-image-pull-policy'];
        const score = await runChartTool('kube-score', ['score', ...ignored, '--output-format', 'ci', manifest]);
        expect(score.output).toContain('[OK]');
        expect({ file, critical: score.output.split('\n').filter((line) => line.startsWith('[CRITICAL]')) }).toEqual({
          file,
          critical: [],
        });
      }
    },
  );

  test('every pod of every values file passes PodSecurity restricted, without a token of its service account', async () => {
    for (const file of files) {
      const pods = (await render(file)).filter((each) => podOf(each) !== undefined);
      expect(pods.length).toBeGreaterThanOrEqual(serviceNames.length + 2);
      for (const resource of pods) expectRestricted(resource);
    }
  });

  test('every setting of every service is one that it reads, with a value that it accepts', async () => {
    const ofNode = ['NODE_OPTIONS', 'UV_THREADPOOL_SIZE'];
    for (const file of files) {
      const resources = await render(file);
      for (const service of serviceNames) {
        const { env = [], volumeMounts } = containersOf(deployment(resources, service))[0]!;
        const given = Object.fromEntries(env.map(({ name, value }) => [name, value!]));
        expect(Object.keys(given).filter((name) => typeof given[name] !== 'string')).toEqual([]);
        expect(env).toHaveLength(Object.keys(given).length);
        for (const name of ofNode) {
          expect(given[name]).toBeDefined();
          delete given[name];
        }
        const schema = serviceSchemas[service];
        expect(Object.keys(given).filter((name) => !(name in schema.shape))).toEqual([]);
        expect(() => readConfig(schema, given)).not.toThrow();
        const paths = volumeMounts.map(({ mountPath }) => `${mountPath}/`);
        const unmounted = Object.entries(given).filter(
          ([name, value]) => /_(FILE|DIRECTORY)$/.test(name) && !paths.some((each) => `${value}/`.startsWith(each)),
        );
        expect({ service, unmounted }).toEqual({ service, unmounted: [] });
      }
    }
  });

  test('the services of a release find each other, and wait for the schema', async () => {
    const resources = await render(minimalValues);
    const envOf = (service: string) =>
      Object.fromEntries(containersOf(deployment(resources, service))[0]!.env!.map(({ name, value }) => [name, value]));
    expect(envOf('payments')).toMatchObject({ MIGRATIONS: 'wait', FINANCE_ADDRESS: 'dns:///granary-finance:5000' });
    expect(envOf('gateway')['BLOBS_HTTP_ADDRESS']).toBe('granary-blobs:5001');
    expect(envOf('finance')).not.toHaveProperty('KEY_FILE_CREATE');
    expect(envOf('data')['CONNECTION_AGE_MS']).toBe('60000');
    const services = ofKind(resources, 'Service').map(({ metadata }) => metadata.name);
    for (const service of serviceNames) {
      for (const [name, value] of Object.entries(envOf(service))) {
        if (name.endsWith('_ADDRESS')) expect(services).toContain(/([a-z-]+):\d+$/.exec(value!)![1]);
      }
    }
  });

  test('the grace period covers the delay, the time for requests, and the stop', async () => {
    const drain = { delayMs: 12_500, timeoutMs: 600_000 };
    const resources = await render(minimalValues, { components: { blobs: { drain } } });
    expect(podOf(deployment(resources, 'blobs'))!.terminationGracePeriodSeconds).toBe(613 + 25);
    expect(podOf(deployment(resources, 'data'))!.terminationGracePeriodSeconds).toBe(18 + 25);
  });

  test('the heap is what the limit leaves beside the buffers', async () => {
    const resources = await render(minimalValues, {
      components: {
        data: {
          env: { WRITE_BUFFER_BYTES: String(512 * 1024 ** 2) },
          resources: { requests: { cpu: '3500m' }, limits: { memory: '2Gi' } },
        },
      },
    });
    const env = (service: string) => containersOf(deployment(resources, service))[0]!.env!;
    expect(env('data')).toContainEqual({
      name: 'NODE_OPTIONS',
      value: `--max-old-space-size=${2048 - 512 - 128} --v8-pool-size=3`,
    });
    expect(env('data')).toContainEqual({ name: 'UV_THREADPOOL_SIZE', value: '8' });
    expect(env('tasks')).toContainEqual({ name: 'NODE_OPTIONS', value: '--max-old-space-size=256 --v8-pool-size=1' });
  });

  test('the pools and buffers that the guards count are the defaults of the services', async () => {
    const templates = await Promise.all(
      ['_env.tpl', '_validate.tpl'].map((name) => readText(`charts/granary/templates/${name}`)),
    );
    const counted = [...templates.join('').matchAll(/"([A-Z_]+_(?:BYTES|SIZE))" (\d+)/g)];
    expect(new Set(counted.map(([, name]) => name)).size).toBe(7);
    for (const [, name = '', value] of counted) {
      const fields = Object.values(serviceSchemas).flatMap(({ shape }) =>
        name in shape ? [shape[name as never]] : [],
      );
      const defaults = fields.map((field: z.ZodType) => field.parse(undefined));
      expect({ name, defaults: [...new Set(defaults)] }).toEqual({ name, defaults: [Number(value)] });
    }
  });

  test('the image leaves the flags of V8 to NODE_OPTIONS: arguments of its entrypoint would override those of the chart', async () => {
    const ways = [/^ *Entrypoint: (.*)$/m.exec(await readText('scripts/image.mjs'))![1]];
    ways.push(/^ENTRYPOINT (.*)$/m.exec(await readText('deploy/image/Dockerfile'))![1]);
    for (const way of ways) expect(way).toMatch(/^\[['"]\S+\/node['"], ['"]\/app\/granary\.mjs['"]\],?$/);
  });

  test('a deployment has a number of copies, a budget and a spread, or an autoscaler in place of the number', async () => {
    const autoscaling = { enabled: true, minReplicas: 2, maxReplicas: 4 };
    const resources = await render(minimalValues, {
      components: { gateway: { autoscaling }, tasks: { replicas: 1 } },
    });
    expect(deployment(resources, 'gateway').spec).not.toHaveProperty('replicas');
    expect(deployment(resources, 'data').spec).toMatchObject({
      replicas: 2,
      strategy: { rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } },
    });
    expect(podOf(deployment(resources, 'data'))!.topologySpreadConstraints).toHaveLength(2);
    const names = (kind: string) => ofKind(resources, kind).map(({ metadata }) => metadata.name);
    expect(names('HorizontalPodAutoscaler')).toEqual(['granary-gateway']);
    const budgets = ['blobs', 'data', 'finance', 'gateway', 'payments'].map((name) => `granary-${name}`);
    expect(names('PodDisruptionBudget').sort()).toEqual(budgets);
  });

  test('neither a request nor the way to the gateway has a time limit at an HTTPRoute', async () => {
    const httpRoute = { enabled: true, parentRefs: [{ name: 'public' }], hostnames: ['api.example.com'] };
    const [route] = ofKind(await render(minimalValues, { httpRoute }), 'HTTPRoute');
    expect(route!.spec['rules']).toEqual([
      {
        matches: [{ path: { type: 'PathPrefix', value: '/' } }],
        timeouts: { request: '0s', backendRequest: '0s' },
        backendRefs: [{ name: 'granary-gateway', port: 80 }],
      },
    ]);
  });

  test('the wallet is a file that the group may read, of finance alone', async () => {
    const resources = await render(minimalValues);
    const withWallet = ofKind(resources, 'Deployment').filter((each) =>
      JSON.stringify(each).includes('granary-wallet'),
    );
    expect(withWallet.map(({ metadata }) => metadata.name)).toEqual(['granary-finance']);
    const pod = podOf(withWallet[0]!)!;
    expect(pod.volumes.find(({ name }) => name === 'wallet')).toMatchObject({ projected: { defaultMode: 0o440 } });
    expect(pod.securityContext).toMatchObject({ fsGroup: 65532, runAsUser: 65532 });
  });

  test('the URLs of the nodes of a real chain are a file of finance alone, for they may hold keys', async () => {
    const chain = { kind: 'cosmos', id: 'celestia', existingSecret: 'nodes', rpcUrlsKey: 'urls' };
    const [finance, ...others] = (await render(minimalValues, { chain })).filter((each) =>
      JSON.stringify(each).includes('"name":"nodes"'),
    );
    expect([finance!.metadata.name, others]).toEqual(['granary-finance', []]);
    const file = { name: 'CHAIN_RPC_URLS_FILE', value: '/etc/granary/chain/rpc-urls' };
    expect(containersOf(finance!)[0]!.env).toContainEqual(file);
    const secret = { name: 'nodes', items: [{ key: 'urls', path: 'rpc-urls' }] };
    expect(podOf(finance!)!.volumes.find(({ name }) => name === 'chain')).toMatchObject({
      projected: { sources: [{ secret }] },
    });
  });

  test('the root key of encrypted fields is a file of data alone, where there is one', async () => {
    const withKey = async (values: Record<string, unknown>) =>
      ofKind(await render(minimalValues, values), 'Deployment').filter((each) =>
        JSON.stringify(each).includes('/etc/granary/encryption'),
      );
    expect(await withKey({})).toEqual([]);
    const [data, ...others] = await withKey({ encryption: { existingSecret: 'granary-encryption' } });
    expect([data!.metadata.name, others]).toEqual(['granary-data', []]);
    expect(podOf(data!)!.volumes.find(({ name }) => name === 'encryption')).toMatchObject({
      projected: { defaultMode: 0o440, sources: [{ secret: { name: 'granary-encryption' } }] },
    });
  });

  test('the root key in Vault is reached by data alone, with a token and an authority from Secrets', async () => {
    const vault = { url: 'https://vault.example.com:8200', key: 'granary', tokenSecret: 'token', caSecret: 'vault-ca' };
    const encryption = { vault: { ...vault, namespace: 'team/a' }, old: { existingSecret: 'granary-encryption' } };
    const resources = await render(minimalValues, { encryption });
    const [data, ...others] = ofKind(resources, 'Deployment').filter((each) =>
      JSON.stringify(each).includes('ENCRYPTION_VAULT_'),
    );
    expect([data!.metadata.name, others]).toEqual(['granary-data', []]);
    const env = Object.fromEntries(containersOf(data!)[0]!.env!.map(({ name, value }) => [name, value]));
    expect(env).toMatchObject({
      ENCRYPTION_VAULT_URL: vault.url,
      ENCRYPTION_VAULT_KEY: 'granary',
      ENCRYPTION_VAULT_MOUNT: 'transit',
      ENCRYPTION_VAULT_NAMESPACE: 'team/a',
      ENCRYPTION_VAULT_TOKEN_FILE: '/etc/granary/encryption/token',
      ENCRYPTION_VAULT_CA_FILE: '/etc/granary/encryption/ca.crt',
      ENCRYPTION_OLD_KEY_FILE: '/etc/granary/encryption/old-seed',
    });
    expect(env).not.toHaveProperty('ENCRYPTION_KEY_FILE');
    const volume = podOf(data!)!.volumes.find(({ name }) => name === 'encryption');
    const files = JSON.stringify(volume).match(/"path":"[\w.-]+"/g);
    expect(files).toEqual(['"path":"old-seed"', '"path":"token"', '"path":"ca.crt"']);
    const reaching = ofKind(resources, 'NetworkPolicy').filter((each) => JSON.stringify(each).includes('8200'));
    expect(reaching.map(({ metadata }) => metadata.name)).toEqual(['granary-data']);
  });

  test('the schemas refuse a member that Kubernetes does not know', async () => {
    const rendered = await template([minimalValues]);
    const manifest = path.join(folder, 'wrong.yaml');
    await writeFile(manifest, rendered.output.replaceAll('revisionHistoryLimit:', 'revisionHistory:'));
    const location = path.join(folder, '{{.ResourceKind}}{{.KindSuffix}}.json');
    const { code, output } = await runChartTool('kubeconform', ['-schema-location', location, manifest]);
    expect(code).toBe(1);
    expect(output).toContain('revisionHistory');
  });

  test('backups verify the certificate of Postgres as the services do: by the CA of the values, or those of the system', async () => {
    const rootOf = async (tls: Record<string, string>) => {
      const image = { repository: 'storage/postgres' };
      const values = { backup: { enabled: true, existingClaim: 'dumps', image }, postgres: { tls } };
      const jobs = ofKind(await render(minimalValues, values), 'CronJob');
      expect(jobs.map(({ metadata }) => metadata.name)).toEqual(['granary-backup', 'granary-restore']);
      return jobs.map((job) => containersOf(job)[0]!.env!.find(({ name }) => name === 'PGSSLROOTCERT')?.value);
    };
    expect(await rootOf({})).toEqual(['system', 'system']);
    const file = '/etc/granary/postgres-data/ca.crt';
    expect(await rootOf({ caSecret: 'ca' })).toEqual([file, file]);
    expect(await rootOf({ mode: 'disable' })).toEqual([undefined, undefined]);
  });

  test('extra objects are templates', async () => {
    const extraObjects = ["apiVersion: v1\nkind: ConfigMap\nmetadata: { name: '{{ .Release.Name }}-more' }"];
    const resources = await render(minimalValues, { extraObjects });
    expect(ofKind(resources, 'ConfigMap').map(({ metadata }) => metadata.name)).toContain('granary-more');
  });
});
