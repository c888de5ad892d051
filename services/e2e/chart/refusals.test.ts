import { describeWith } from '@granary/testing/stack';
import { buildTimeoutMs, minimalValues, template, withValues } from './chart';

type Refusal = readonly [values: Record<string, unknown>, sentence: string | RegExp];

const gatewayLimits = { resources: { limits: { memory: '400Mi' } } };
const scaled = { enabled: true, minReplicas: 2, maxReplicas: 4 };
const keda = { ...scaled, prometheus: 'http://prometheus:9090' };
const kafka = { enabled: true, brokers: ['kafka:9092'] };
const backup = { enabled: true, existingClaim: 'dumps', image: { repository: 'storage/postgres' } };
const vault = { url: 'https://vault:8200', tokenSecret: 'token' };
const components = (name: string, values: Record<string, unknown>) => ({ components: { [name]: values } });
const withEnv = (name: string, env: Record<string, unknown>) => components(name, { env });

/** What the templates refuse, with a sentence of ours. */
const guarded: Record<string, Refusal> = {
  'no Postgres': [{ postgres: { host: '' } }, 'postgres.host is required'],
  'no passwords': [{ postgres: { existingSecret: '' } }, 'postgres.existingSecret is required'],
  'no trust': [{ trust: { existingSecret: '' } }, 'trust.existingSecret is required'],
  'no operator': [{ operator: { existingSecret: '' } }, 'operator.existingSecret is required'],
  'no wallet': [{ wallet: { existingSecret: '' } }, 'which must outlive every pod'],
  'more copies than connections': [
    components('data', { replicas: 12 }),
    'need 262: blobs (2 + 1) x 8, data (12 + 1) x 12, finance (2 + 1) x 8, payments (2 + 1) x 8, tasks (2 + 1) x 8',
  ],
  'an autoscaler with more copies than connections': [
    components('data', { autoscaling: { ...scaled, maxReplicas: 12 } }),
    'postgres.maxConnections is 200',
  ],
  'larger pools than connections': [withEnv('data', { DATABASE_POOL_SIZE: '64' }), 'data (2 + 1) x 68'],
  'Kafka without brokers': [{ kafka: { enabled: true } }, 'kafka.brokers is required'],
  'SASL without a password': [
    { kafka: { ...kafka, sasl: { username: 'granary' } } },
    'kafka.sasl.existingSecret is required',
  ],
  'a password in clear': [
    {
      kafka: { ...kafka, sasl: { username: 'g', existingSecret: 's', mechanism: 'plain' }, tls: { enabled: false } },
    },
    'the password would be sent in clear',
  ],
  'a client certificate without TLS': [
    { kafka: { ...kafka, tls: { enabled: false, clientSecret: 's' } } },
    'kafka.tls.clientSecret needs kafka.tls.enabled',
  ],
  'no object store': [{ objectStorage: { endpoint: '' } }, 'blobs are kept in S3 only'],
  'blobs in files': [withEnv('blobs', { OBJECT_STORE: 'files' }), 'blobs are kept in S3 only'],
  'no keys of the store': [{ objectStorage: { existingSecret: '' } }, 'objectStorage.existingSecret is required'],
  'keys and web identity': [{ objectStorage: { webIdentity: { enabled: true } } }, 'exclude each other'],
  'redirects to an unknown address': [
    { objectStorage: { presigned: true } },
    'objectStorage.publicEndpoint is required',
  ],
  'a real chain without its id': [{ chain: { kind: 'cosmos', existingSecret: 's' } }, 'chain.id is required'],
  'a real chain without nodes': [{ chain: { kind: 'cosmos', id: 'celestia' } }, 'chain.existingSecret is required'],
  'backups without a volume': [{ backup: { enabled: true } }, 'backup.existingClaim is required'],
  'a restore without the volume of the backups': [
    { backup: { restore: { from: 'latest' } } },
    'backup.restore.from needs backup.enabled',
  ],
  'a restore that nothing does': [
    { backup: { ...backup, restore: { from: 'latest' } }, migrations: { enabled: false } },
    'backup.restore.from needs migrations.enabled: the Job that migrates restores first',
  ],
  'backups by an image without authorities': [
    { backup: { ...backup, image: {} } },
    'postgres.tls.caSecret is required with backup.enabled: the image library/postgres has no certificate authorities',
  ],
  'two sources of certificates': [
    {
      tls: {
        enabled: true,
        existingSecrets: { data: 's' },
        certManager: { enabled: true, issuerRef: { name: 'i' } },
      },
    },
    'tls.existingSecrets and tls.certManager exclude each other',
  ],
  'cert-manager without an issuer': [
    { tls: { enabled: true, certManager: { enabled: true } } },
    'tls.certManager.issuerRef.name is required',
  ],
  'TLS in one service only': [
    { tls: { enabled: true, existingSecrets: { data: 's' } } },
    'tls.existingSecrets.blobs is required with tls.enabled: TLS is on in all services or in none',
  ],
  'certificates without TLS': [{ tls: { certManager: { enabled: true } } }, 'tls.certManager needs tls.enabled'],
  'an Ingress without hosts': [{ ingress: { enabled: true } }, 'ingress.hosts is required'],
  'a route without Gateway': [{ httpRoute: { enabled: true } }, 'httpRoute.parentRefs is required'],
  'a Prometheus that is refused': [
    { metrics: { serviceMonitor: { enabled: true } } },
    'networkPolicy.metricsFrom is required',
  ],
  'two autoscalers': [
    components('tasks', { autoscaling: scaled, keda }),
    'components.tasks: autoscaling and keda exclude each other',
  ],
  'an autoscaler upside down': [
    components('gateway', { autoscaling: { ...scaled, minReplicas: 5 } }),
    'components.gateway.autoscaling.minReplicas is above maxReplicas',
  ],
  'scaling by events where one copy applies them': [
    components('tasks', { keda }),
    'components.tasks.keda needs kafka.enabled: over Postgres one copy of a service applies its events',
  ],
  'scaling by events that nobody reads': [components('gateway', { keda }), 'gateway reads none: use autoscaling'],
  'KEDA without Prometheus': [
    { kafka, ...components('tasks', { keda: scaled }) },
    'components.tasks.keda.prometheus is required',
  ],
  'two limits for blobs': [withEnv('gateway', { MAX_BLOB_BYTES: '1' }), 'gateway and blobs need the same limit'],
  'a seed on a volume of the pod': [withEnv('finance', { KEY_FILE_CREATE: 'true' }), 'would be lost with it'],
  'a root key on a volume of the pod': [
    withEnv('data', { ENCRYPTION_KEY_FILE_CREATE: 'true' }),
    'set encryption.existingSecret',
  ],
  'a root key in two places': [
    { encryption: { existingSecret: 'seed', vault: { ...vault, key: 'granary' } } },
    'encryption.existingSecret and encryption.vault.key exclude each other',
  ],
  'two old root keys': [
    { encryption: { vault, old: { existingSecret: 'seed', vaultKey: 'old' } } },
    'encryption.old.existingSecret and encryption.old.vaultKey exclude each other',
  ],
  'a key of Vault without its address': [{ encryption: { vault: { key: 'a' } } }, 'encryption.vault.url is required'],
  'a key of Vault without a token': [
    { encryption: { vault: { key: 'a', url: vault.url } } },
    'encryption.vault.tokenSecret is required',
  ],
  'settings of Vault beside its values': [
    withEnv('data', { ENCRYPTION_VAULT_KEY: 'a' }),
    'set encryption.vault or encryption.old',
  ],
  'a secret in the values': [withEnv('gateway', { OPERATOR_KEY: 'x'.repeat(32) }), 'secrets come from Secrets'],
  'an address of its own': [withEnv('finance', { DATA_ADDRESS: 'data:1' }), 'DATA_ADDRESS is set by the chart'],
  'a delay beside drain.delayMs': [withEnv('data', { DRAIN_DELAY_MS: '1' }), 'DRAIN_DELAY_MS is set by the chart'],
  'less memory than buffers': [
    components('gateway', gatewayLimits),
    'leaves -48 MiB for the heap beside buffers of 320 MiB and 128 MiB for the process',
  ],
  'requests above limits': [
    components('tasks', { resources: { requests: { memory: '1Gi' } } }),
    'components.tasks.resources.requests.memory is above limits.memory',
  ],
};

/** What the schema refuses, by the place. */
const refusedBySchema: Record<string, Refusal> = {
  'an unknown value': [{ postgress: {} }, /postgress/],
  'an unknown key of a component': [components('data', { replica: 3 }), /\/components\/data.*\n?.*replica/],
  'an unknown component': [components('search', { resources: {} }), /search/],
  'no copy': [components('data', { replicas: 0 }), /\/components\/data\/replicas/],
  'a setting that is no string': [withEnv('data', { FAST_POOL_SIZE: 4 }), /\/components\/data\/env\/FAST_POOL_SIZE/],
  'a size that is no number': [
    withEnv('data', { DATABASE_POOL_SIZE: 'abc' }),
    /\/components\/data\/env\/DATABASE_POOL_SIZE/,
  ],
  'scaling by an age that events always have': [
    components('tasks', { keda: { ...keda, outboxAge: 10 } }),
    /\/components\/tasks\/keda\/outboxAge/,
  ],
  'a pool without connections': [
    { defaults: { env: { DATABASE_POOL_SIZE: '0' } } },
    /\/defaults\/env\/DATABASE_POOL_SIZE/,
  ],
  'a buffer with a unit': [
    withEnv('gateway', { BODY_BUDGET_BYTES: '256Mi' }),
    /\/components\/gateway\/env\/BODY_BUDGET_BYTES/,
  ],
  'a backup that no name can be': [{ backup: { ...backup, restore: { from: '../x' } } }, /\/backup\/restore\/from/],
  'a setting in lower case': [withEnv('data', { pool: '4' }), /pool/],
  'a port out of range': [{ postgres: { port: 70_000 } }, /\/postgres\/port/],
  'an unknown sslmode': [{ postgres: { tls: { mode: 'always' } } }, /\/postgres\/tls\/mode/],
  'an sslmode that the services take for another': [
    { postgres: { tls: { mode: 'require' } } },
    /\/postgres\/tls\/mode/,
  ],
  'a broker without a port': [{ kafka: { enabled: true, brokers: ['kafka'] } }, /\/kafka\/brokers\/0/],
  'an address of the store with a path': [{ objectStorage: { endpoint: 'https://s3/x' } }, /\/objectStorage\/endpoint/],
  'a prefix without a slash': [{ objectStorage: { prefix: 'granary' } }, /\/objectStorage\/prefix/],
  'a digest that is none': [{ image: { digest: 'sha256:12' } }, /\/image\/digest/],
  'a public address without scheme': [{ publicUrl: 'api.example.com' }, /\/publicUrl/],
  'memory without a unit': [
    components('data', { resources: { limits: { memory: '512' } } }),
    /\/components\/data\/resources\/limits\/memory/,
  ],
  'a delay beyond a minute': [components('data', { drain: { delayMs: 90_000 } }), /\/drain\/delayMs/],
  'a Secret with a name that cannot be': [{ trust: { existingSecret: 'My Secret' } }, /\/trust\/existingSecret/],
};

describeWith(describe, 'helm')('values that are refused', () => {
  const refusal = async (values: Record<string, unknown>): Promise<string> => {
    const { code, output } = await withValues(values, (file) => template([minimalValues, file]));
    return code === 0 ? 'rendered' : output;
  };

  test(
    'at least forty, and the file that they change is accepted',
    async () => {
      expect(Object.keys(guarded).length + Object.keys(refusedBySchema).length).toBeGreaterThanOrEqual(40);
      expect(await refusal({})).toBe('rendered');
    },
    buildTimeoutMs,
  );

  test.each(Object.entries(guarded))('%s: the sentence says why', async (_, [values, sentence]) => {
    expect(await refusal(values)).toContain(sentence);
  });

  test('a restore over a running release: the sentence says how to upgrade', async () => {
    const values = { backup: { ...backup, restore: { from: 'latest' } } };
    const { code, output } = await withValues(values, (file) => template([minimalValues, file], ['--is-upgrade']));
    expect(code).not.toBe(0);
    expect(output).toContain('backup.restore.from restores into empty databases, at an install');
    expect(output).toContain('--set backup.restore.from=');
    expect(await refusal(values)).toBe('rendered');
  });

  test.each(Object.entries(refusedBySchema))('%s: the message says where', async (_, [values, place]) => {
    const message = await refusal(values);
    expect(message).toContain("values don't meet the specifications of the schema");
    expect(message.replaceAll("'", '')).toMatch(place);
  });
});
