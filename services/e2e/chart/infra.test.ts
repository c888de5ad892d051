import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { describeWith } from '@granary/testing/stack';
import { parse as parseYaml } from 'yaml';
import {
  buildTimeoutMs,
  expectRestricted,
  ofKind,
  parse,
  podOf,
  readText,
  root,
  runChartTool,
  template,
  type Resource,
} from './chart';
import { writeKubernetesSchemas } from './kubernetes-schemas';

const infra = path.join(root, 'charts/granary-infra');
const granaryValues = path.join(infra, 'ci/granary-values.yaml');
const seed = 'seed-of-the-tests-0123456789-0123456789';

/** Kinds of the operators. */
const foreignKinds = ['Cluster', 'Kafka', 'KafkaNodePool', 'KafkaUser'];

interface GranaryValues {
  postgres: { host: string; existingSecret: string; tls: { caSecret: string } };
  kafka: { brokers: string[]; sasl: { username: string; existingSecret: string } };
  objectStorage: { endpoint: string; existingSecret: string };
}

describeWith(describe, 'helm')('charts/granary-infra', () => {
  const renderInfra = (...args: string[]) => runChartTool('helm', ['template', 'infra', infra, ...args]);
  let rendered: string;
  let resources: Resource[];
  beforeAll(async () => {
    rendered = (await renderInfra('--set', `passwordSeed=${seed}`)).output;
    resources = parse(rendered);
  }, buildTimeoutMs);

  const names = (kind: string) => ofKind(resources, kind).map(({ metadata }) => metadata.name);

  test('it passes helm lint --strict, and renders what the API of Kubernetes accepts', async () => {
    const linted = await runChartTool('helm', ['lint', '--strict', infra, '--set', `passwordSeed=${seed}`]);
    expect({ code: linted.code, output: linted.code === 0 ? '' : linted.output }).toEqual({ code: 0, output: '' });
    const folder = await mkdtemp(path.join(os.tmpdir(), 'granary-infra-'));
    try {
      await writeKubernetesSchemas(folder);
      await writeFile(path.join(folder, 'manifest.yaml'), rendered);
      const location = path.join(folder, '{{.ResourceKind}}{{.KindSuffix}}.json');
      const args = ['-schema-location', location, '-skip', foreignKinds.join(','), '-summary'];
      const { output } = await runChartTool('kubeconform', [...args, path.join(folder, 'manifest.yaml')]);
      expect(output).toMatch(/Valid: 6, Invalid: 0, Errors: 0, Skipped: 4/);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test('its pods pass PodSecurity restricted', () => {
    const pods = resources.filter((each) => podOf(each) !== undefined);
    expect(pods.map(({ kind }) => kind).sort()).toEqual(['Job', 'StatefulSet']);
    for (const pod of pods) expectRestricted(pod);
  });

  test('databases and roles are made by deploy/postgres.sql, with the passwords that granary gets', async () => {
    expect(await readText('charts/granary-infra/files/postgres.sql')).toBe(await readText('deploy/postgres.sql'));
    const [sql] = ofKind(resources, 'ConfigMap');
    expect(sql!.data!['postgres.sql']!.trim()).toBe((await readText('deploy/postgres.sql')).trim());
    const env = podOf(ofKind(resources, 'Job')[0]!)!.containers[0]!.env!.map(({ name }) => name);
    for (const service of ['DATA', 'BLOBS', 'FINANCE', 'PAYMENTS', 'TASKS']) {
      expect(env).toEqual(expect.arrayContaining([`${service}_PASSWORD`, `${service}_OWNER_PASSWORD`]));
    }
  });

  test('a commit is acknowledged once a standby has it', () => {
    const [cluster] = ofKind(resources, 'Cluster');
    expect(cluster!.spec).toMatchObject({
      instances: 3,
      postgresql: { synchronous: { method: 'any', number: 1, dataDurability: 'required', failoverQuorum: true } },
    });
  });

  test('the values for granary name what this chart and its operators make, and granary accepts them', async () => {
    const values = parseYaml(await readFile(granaryValues, 'utf8')) as GranaryValues;
    const [cluster] = names('Cluster');
    expect(values.postgres.host).toBe(`${cluster}-rw`);
    expect(values.postgres.tls.caSecret).toBe(`${cluster}-ca`);
    expect(names('Secret')).toEqual(
      expect.arrayContaining([values.postgres.existingSecret, values.objectStorage.existingSecret]),
    );
    expect(values.kafka.brokers).toEqual([`${names('Kafka')[0]}-kafka-bootstrap:9093`]);
    expect([values.kafka.sasl.username, values.kafka.sasl.existingSecret]).toEqual([
      ...names('KafkaUser'),
      ...names('KafkaUser'),
    ]);
    expect(names('Service')).toContain(new URL(values.objectStorage.endpoint).hostname);
    const { code, output } = await template([granaryValues]);
    expect({ code, output: code === 0 ? '' : output }).toEqual({ code: 0, output: '' });
  });

  test('passwords are the same at each rendering, differ from each other, and need a seed', async () => {
    expect((await renderInfra('--set', `passwordSeed=${seed}`)).output).toBe(rendered);
    const passwords = [...rendered.matchAll(/: ([0-9a-f]{40})$/gm)].map(([, password]) => password);
    expect(passwords).toHaveLength(11);
    expect(new Set(passwords).size).toBe(11);
    expect((await renderInfra()).output).toContain('passwordSeed is required, with at least 32 characters');
  });
});
