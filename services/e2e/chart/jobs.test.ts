import { priceConfig } from '@granary/payments/config';
import { chartToolsForTests, describeWith } from '@granary/testing/stack';
import {
  buildTimeoutMs,
  containersOf,
  expectRestricted,
  minimalValues,
  ofKind,
  podOf,
  render,
  type Container,
  type Resource,
} from './chart';

describeWith(describe, 'helm')('the Jobs of charts/granary', () => {
  beforeAll(() => chartToolsForTests(), buildTimeoutMs);

  test('migrations and topics are Jobs of an install, and hooks before an upgrade that leave nothing behind', async () => {
    const jobs = async (args: string[], values = {}) => {
      const kafka = { enabled: true, brokers: ['kafka:9092'] };
      return ofKind(await render(minimalValues, { kafka, ...values }, args), 'Job');
    };
    for (const job of await jobs([])) expect(job.metadata.annotations).toBeUndefined();
    const hooks = await jobs(['--is-upgrade']);
    expect(hooks).toHaveLength(2);
    for (const { metadata } of hooks) {
      expect(metadata.annotations).toMatchObject({
        'helm.sh/hook': 'pre-upgrade',
        'helm.sh/hook-delete-policy': 'before-hook-creation,hook-succeeded',
      });
    }
    // Helm removes those that succeed; the log of one that failed is there for a day.
    expect(hooks.map(({ spec }) => spec['ttlSecondsAfterFinished'])).toEqual([86_400, 86_400]);
    const [plain] = await jobs(['--is-upgrade'], { migrations: { useHelmHooks: false } });
    expect(plain!.metadata.annotations).toBeUndefined();
    const nameAt = async (values: Record<string, unknown>) => (await jobs([], values))[0]!.metadata.name;
    expect(await nameAt({})).not.toBe(await nameAt({ image: { tag: '2.0.0' } }));
    const [kept] = await jobs([], { migrations: { ttlSecondsAfterFinished: null } });
    expect(kept!.spec).not.toHaveProperty('ttlSecondsAfterFinished');
    const migrate = hooks.find(({ metadata }) => metadata.name.includes('migrate'))!;
    const roles = containersOf(migrate).map(({ name, env }) => [name, env!.find((one) => one.name === 'SERVICE_ROLE')]);
    expect(roles).toContainEqual(['finance', { name: 'SERVICE_ROLE', value: 'granary_finance' }]);
    expect(roles).toHaveLength(5);
    const withoutMigrations = await jobs([], { migrations: { enabled: false } });
    expect(withoutMigrations.map(({ metadata }) => metadata.name)).toEqual([expect.stringContaining('topics')]);
  });

  test('what the migration of payments stores for all copies is what payments is configured with', async () => {
    const stored = Object.keys(priceConfig.shape);
    const env = Object.fromEntries(stored.map((name) => [name, `the ${name}`]));
    const extraEnvFrom = [{ configMapRef: { name: 'rates' } }];
    const values = { components: { payments: { env: { ...env, X402_MIN_UTIA: '1' }, extraEnvFrom } } };
    const [migrate] = ofKind(await render(minimalValues, values), 'Job');
    for (const container of containersOf(migrate!)) {
      const given = container.env!.filter(({ name }) => /^(RETENTION|X402)_/.test(name));
      const expected = Object.entries(env).map(([name, value]) => ({ name, value }));
      const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
      const isPayments = container.name === 'payments';
      expect(given.sort(byName)).toEqual(isPayments ? expected.sort(byName) : []);
      expect((container as { envFrom?: unknown }).envFrom).toEqual(isPayments ? extraEnvFrom : undefined);
    }
  });

  test('an install that restores a backup does so in the Job of the migrations, before they run', async () => {
    const image = { repository: 'storage/postgres' };
    const backup = { enabled: true, existingClaim: 'dumps', image, restore: { from: 'backup-2026-11-22T03-17-00Z' } };
    const resources = await render(minimalValues, { backup });
    const [migrate] = ofKind(resources, 'Job');
    const { initContainers = [], containers, volumes } = podOf(migrate!)!;
    expect(initContainers.map(({ name, command }) => [name, command])).toEqual([
      ['restore', ['sh', '/etc/granary/scripts/restore.sh']],
    ]);
    expect(containers.map(({ name }) => name)).toContain('payments');
    const [{ env = [], volumeMounts }] = initContainers as [Container];
    expect(env).toContainEqual({ name: 'FROM', value: 'backup-2026-11-22T03-17-00Z' });
    const job = { fieldRef: { fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']" } };
    expect(env).toContainEqual({ name: 'JOB_UID', valueFrom: job });
    const mounted = volumeMounts.map(({ name }) => name);
    expect(mounted.filter((name) => !volumes.some((each) => each.name === name))).toEqual([]);
    expect(volumes).toContainEqual({ name: 'backups', persistentVolumeClaim: { claimName: 'dumps' } });
    const scripts = ofKind(resources, 'ConfigMap').find(({ metadata }) => metadata.name === 'granary-backup');
    expect(Object.keys(scripts!.data!)).toContain('restore.sh');
    expectRestricted(migrate!);
    const plain = await render(minimalValues, { backup: { ...backup, restore: {} } });
    expect(podOf(ofKind(plain, 'Job')[0]!)).not.toHaveProperty('initContainers');
    // Databases that are empty as yet are not backed up on schedule.
    const isSuspended = (rendered: Resource[]) =>
      ofKind(rendered, 'CronJob').find(({ metadata }) => metadata.name === 'granary-backup')!.spec['suspend'];
    const without = { backup: { ...backup, restore: {} }, migrations: { enabled: false } };
    expect([resources, plain, await render(minimalValues, without)].map(isSuspended)).toEqual([true, false, true]);
  });

  test('a Deployment may wait for as long as the Job that migrates, where its pods do', async () => {
    const deadlines = async (args: string[], values = {}) =>
      new Set(
        ofKind(await render(minimalValues, values, args), 'Deployment').map(
          ({ spec }) => spec['progressDeadlineSeconds'],
        ),
      );
    const migrations = { activeDeadlineSeconds: 3_600 };
    expect(await deadlines([], { migrations })).toEqual(new Set([4_200]));
    expect(await deadlines(['--is-upgrade'], { migrations })).toEqual(new Set([600]));
    const plain = { migrations: { ...migrations, useHelmHooks: false } };
    expect(await deadlines(['--is-upgrade'], plain)).toEqual(new Set([4_200]));
  });
});
