import { mkdtempSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { send } from './granary';

/** A Granary that was started with the values of the rows. */
export interface Started {
  url: string;
  app: { appId: string; key: string };
  /** All that it has printed so far. */
  output: () => string;
  metricsAddress: string;
  way: 'npm start' | 'npm run stack';
}

export interface Row {
  /** What it is set to: not its default. */
  value: string;
  /** Expects what can be seen of it from outside. Absent: the configuration that the services read is looked at. */
  effect?: (granary: Started) => Promise<void>;
}

const limitOf = (name: string, value: string): Row => ({
  value,
  effect: async ({ metricsAddress }) => {
    const text = await (await fetch(`http://${metricsAddress}/metrics`)).text();
    expect(text.split('\n')).toContain(`${name} ${value}`);
  },
});

/** What a connection gets that sends `bytes` and then nothing, until it is closed. */
function received(url: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    let text = '';
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    socket.on('data', (chunk: Buffer) => (text += chunk.toString())).on('error', () => {});
    socket.on('close', () => resolve(text));
  });
}

/** A file with the mnemonic of BIP-39's first test vector, whose account on EVM networks is well known. */
function gasSeed(): string {
  const path = join(mkdtempSync(join(tmpdir(), 'granary-gas-')), 'seed');
  writeFileSync(path, `${'abandon '.repeat(11)}about\n`, { mode: 0o600 });
  return path;
}

const headerOf = async ({ url }: Started, name: string, headers: Record<string, string> = {}) =>
  (await send(url, 'GET', '/health', { headers })).headers.get(name);

/** A member of the quote for a write of 2 KB. */
async function quoted(url: string, app_id: string, member: string): Promise<unknown> {
  const body = { app_id, operation_type: 'write', collection: 'films', size_kb: 2 };
  return (await send(url, 'POST', '/api/pricing/quote', { body })).body[member];
}

/**
 * Every setting of docs/ that npm start and npm run stack take, with a value that is not its default and, where it can
 * be seen from outside, its effect. A setting that only a launcher can know (an address, a secret) is named in
 * `services/local/src/start/settings.ts` in place of .env.example and this list.
 */
export const rows: Record<string, Row> = {
  HOST: {
    value: 'localhost',
    effect: async ({ url }) => expect(new URL(url).hostname).toBe('localhost'),
  },
  SHOW_KEYS: {
    value: 'false',
    effect: async ({ output, app }) => {
      expect(output()).toContain('demo app key: not shown');
      expect(output()).not.toContain(app.key);
    },
  },
  LOG_LEVEL: {
    value: 'info',
    effect: async ({ url, output }) => {
      await send(url, 'GET', '/health?logged');
      await eventually(async () => output().includes('"route":"/health"'));
    },
  },
  PUBLIC_URL: {
    value: 'https://api.example.com/granary',
    effect: async ({ url, app, output }) => {
      const skills = await send(url, 'GET', `/api/skills/${app.appId}/skills.md`);
      expect(skills.text).toContain(`https://api.example.com/granary/list`);
      expect((await send(url, 'GET', '/docs')).text).toContain('URL=https://api.example.com/granary<');
      expect(output()).toContain('public address, for clients elsewhere: https://api.example.com/granary\n');
    },
  },
  DEFAULT_READ: {
    value: 'private',
    effect: async ({ url, app: { appId, key }, output }) => {
      expect(output()).toContain(`/collections/notes/data?stars=5' -H "X-App-Key: $APP_KEY"`);
      const made = await send(url, 'POST', `/api/apps/${appId}/collections`, { key, body: { name: 'says_nothing' } });
      expect(made.body['access_policy']).toEqual({ read: 'private' });
    },
  },
  // There is nothing yet that it has wrapped.
  ENCRYPTION_OLD_KEY_FILE: { value: gasSeed() },
  COUNTRY_NETWORKS_FILE: {
    value: join(__dirname, 'networks.csv'),
    effect: async ({ url, app: { appId, key } }) => {
      const root = `${appId}::visits`;
      const stored = await send(url, 'POST', '/store', { key, body: { root, data: [{ ip: '192.0.2.7' }] } });
      expect(stored.status).toBe(202);
      const found = await send(url, 'POST', '/list', { key, body: { root, find: { ip: { inCountry: 'DE' } } } });
      expect([found.status, found.body['total']]).toEqual([200, 1]);
    },
  },
  CORS_ORIGINS: {
    value: 'https://a.example',
    effect: async (granary) => {
      const name = 'access-control-allow-origin';
      expect(await headerOf(granary, name, { origin: 'https://a.example' })).toBe('https://a.example');
      expect(await headerOf(granary, name, { origin: 'https://b.example' })).toBeNull();
    },
  },
  TRUST_PROXY: {
    value: 'true',
    effect: async ({ url, output }) => {
      await send(url, 'GET', '/health', { headers: { 'x-forwarded-for': '192.0.2.77' } });
      await eventually(async () => output().includes('192.0.2.77'));
    },
  },
  MAX_BLOB_BYTES: {
    value: '1000',
    effect: async ({ url, app }) => {
      const upload = (size: number) =>
        send(url, 'POST', `/api/apps/${app.appId}/blobs/files`, {
          key: app.key,
          headers: { 'content-type': 'text/plain' },
          body: 'x'.repeat(size),
        });
      expect((await upload(1000)).status).toBe(202);
      expect((await upload(1001)).status).toBe(413);
    },
  },
  ADDRESS_PREFIX: {
    value: 'granarytest',
    effect: async ({ url, app }) => {
      const wallet = () => send<{ address?: string }>(url, 'GET', `/api/apps/${app.appId}/wallet`, { key: app.key });
      expect((await wallet()).body.address).toMatch(/^granarytest1/);
    },
  },
  // The other value needs nodes: services/finance/test/cosmos-service.test.ts.
  CHAIN: {
    value: 'simulated',
    effect: async ({ url }) => {
      // A service that answers late is in the report without what it says.
      const report = async () => (await send(url, 'GET', '/health')).text;
      await eventually(async () => /granary-simulated-\w+ is simulated/.test(await report()));
    },
  },
  CHAIN_RPC_URLS: { value: 'https://rpc-1.example,https://rpc-2.example/path' },
  CHAIN_ID: { value: 'mocha-5' },
  CHAIN_DENOM: { value: 'utest' },
  CHAIN_MEMO_BYTES_MAX: { value: '16' },
  CHAIN_RPC_TIMEOUT_MS: { value: '5000' },
  CHAIN_GAS_PRICE: { value: '0.01' },
  PAYOUT_FLOOR_UTIA: { value: '777' },
  PAYOUT_INTERVAL_MS: { value: '86400000' },
  DEPOSIT_DEPTH_BLOCKS: { value: '2' },
  FAUCET_UTIA_MAX: { value: '5000' },
  SIMULATED_BLOCK_MS: { value: '500' },
  SIMULATED_LOSS_PERCENT: { value: '1' },
  SIMULATED_EVICTION_PERCENT: { value: '2' },
  SIMULATED_DELAY_BLOCKS: { value: '3' },
  RETENTION_UTIA_PER_GIB_DAY: { value: '77' },
  RETENTION_FREE_DAYS: { value: '7' },
  WRITE_UTIA_PER_KB: {
    value: '50',
    effect: async ({ url, app }) => expect(await quoted(url, app.appId, 'base_celestia_cost_utia')).toBe(100),
  },
  READ_UTIA_PER_KB: { value: '3' },
  INDEX_UTIA_PER_KB: { value: '4' },
  BROKER_FEE_PERCENT: {
    value: '0:20,1000:12.5',
    effect: async ({ url, app }) => expect(await quoted(url, app.appId, 'broker_fee_utia')).toBe(20),
  },
  APP_SHARE_PERCENT: { value: '75' },
  X402_PAY_TO: { value: 'wallets' },
  X402_EVM_ASSETS: {
    value: 'eip155:84532/0x036CbD53842c5426634e7929541eC2318f3dCF7e=USDC:2',
    effect: async ({ url }) => {
      const { body } = await send<{ kinds: object[] }>(url, 'GET', '/x402/supported');
      const networks = body.kinds.map((kind) => (kind as { network: string }).network);
      expect(networks.filter((name) => !name.startsWith('cosmos:'))).toEqual([
        'eip155:84532',
        'base-sepolia',
        'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1',
        'solana-devnet',
      ]);
    },
  },
  X402_SOLANA_ASSETS: {
    value: 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1/4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU=6',
  },
  X402_SOLANA_FEE_PAYERS: {
    value: 'BPFLoaderUpgradeab1e11111111111111111111111',
    effect: async ({ url }) => {
      const { body } = await send<{ signers: Record<string, string[]> }>(url, 'GET', '/x402/supported');
      expect(body.signers['solana:*']).toContain('BPFLoaderUpgradeab1e11111111111111111111111');
    },
  },
  ENCRYPTED_INDEX_UTIA: { value: '900000' },
  X402_RATES: { value: 'eip155:84532/0x036CbD53842c5426634e7929541eC2318f3dCF7e=4200000' },
  X402_MIN_UTIA: { value: '2000,eip155:84532=5000' },
  X402_SETTLE: { value: 'open' },
  X402_SETTLE_WAIT_MS: { value: '4000' },
  EVM_RPC_URLS: { value: 'eip155:84532=http://127.0.0.1:9' },
  X402_KEY_FILE: {
    value: gasSeed(),
    effect: async ({ url }) => {
      const { body } = await send<{ signers: Record<string, string[]> }>(url, 'GET', '/x402/supported');
      expect(body.signers).toMatchObject({
        'eip155:*': ['0x9858effd232b4033e47d90003d41ec34ecaeda94'],
        'solana:*': expect.arrayContaining(['HAgk14JpMQLgt6rVgv7cBQFJWFto5Dqxi472uT3DKpqk']) as string[],
      });
    },
  },
  EVM_DEPTH_BLOCKS: { value: '3' },
  EVM_RPC_TIMEOUT_MS: { value: '2000' },
  EVM_REPLACE_AFTER_MS: { value: '60000' },
  EVM_MAX_FEE_GWEI: { value: '50,eip155:1=200' },
  SOLANA_RPC_URLS: { value: 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1=http://127.0.0.1:9' },
  SOLANA_COMMITMENT: { value: 'finalized' },
  SOLANA_RPC_TIMEOUT_MS: { value: '2000' },
  AGENT_RESERVATION_MS: { value: '61000' },
  BODY_BUDGET_BYTES: limitOf('granary_body_budget_limit_bytes', '33554432'),
  CONCURRENCY: limitOf('granary_admission_limit{class="requests"}', '333'),
  WAITING_BODIES: limitOf('granary_waiting_bodies_limit', '321'),
  STREAM_CONCURRENCY: limitOf('granary_admission_limit{class="uploads"}', '111'),
  EXPORTS: limitOf('granary_admission_limit{class="exports"}', '7'),
  IMPORTS: limitOf('granary_admission_limit{class="imports"}', '9'),
  KEEP_ALIVE_TIMEOUT_MS: {
    value: '7000',
    effect: async (granary) => expect(await headerOf(granary, 'keep-alive')).toBe('timeout=7'),
  },
  BODY_TIMEOUT_MS: {
    value: '1500',
    effect: async ({ url, app }) => {
      const head = `POST /list HTTP/1.1\r\nHost: x\r\nX-App-Key: ${app.key}\r\nContent-Type: application/json\r\n`;
      expect(await received(url, `${head}Content-Length: 100\r\n\r\n{`)).toMatch(/^HTTP\/1\.1 408 /);
    },
  },
  IDLE_TIMEOUT_MS: {
    value: '3000',
    effect: async ({ url }) => expect(await received(url, '')).toBe(''),
  },
  METRICS_LISTEN: {
    // The test chooses a free port.
    value: '127.0.0.1:0',
    effect: async ({ metricsAddress }) => expect((await fetch(`http://${metricsAddress}/metrics`)).status).toBe(200),
  },
  OTEL_TRACES_EXPORTER: {
    value: 'console',
    effect: async ({ url, output }) => {
      await send(url, 'GET', '/health');
      await eventually(async () => output().includes("'granary.request_id'"));
    },
  },
  OTEL_SDK_DISABLED: { value: 'no' },
  OTEL_SERVICE_NAME: { value: 'granary-of-a-test' },
  OTEL_EXPORTER_OTLP_ENDPOINT: { value: 'http://127.0.0.1:9/' },
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: { value: 'http://127.0.0.1:9/v1/traces' },
  OTEL_TRACES_SAMPLER: { value: 'always_on' },
  OTEL_TRACES_SAMPLER_ARG: { value: '0.5' },
  COMPRESSION: {
    value: 'false',
    effect: async ({ url }) => {
      const { headers } = await send(url, 'GET', '/openapi.json', { headers: { 'accept-encoding': 'gzip' } });
      expect(headers.get('content-encoding')).toBeNull();
    },
  },
  COMPRESSION_CONCURRENCY: { value: '3' },
  CONNECTION_AGE_MS: { value: '299999' },
  HEALTH_UNHEALTHY_AFTER_MS: { value: '4999' },
  APP_CONCURRENCY: { value: '9' },
  QUEUE_TIMEOUT_MS: { value: '999' },
  HEAD_TIMEOUT_MS: { value: '9997' },
  APP_BUDGET_PERCENT: { value: '49' },
  CLIENT_BUDGET_PERCENT: { value: '48' },
  SMALL_BODY_RESERVE_PERCENT: { value: '11' },
  WAITING_BODIES_PER_APP: { value: '222' },
  WAITING_BODIES_PER_CLIENT: { value: '211' },
  BODY_MIN_BYTES_PER_SECOND: { value: '1023' },
  BODY_GRACE_MS: { value: '4999' },
  READER_MIN_BYTES_PER_SECOND: { value: '4095' },
  READER_GRACE_MS: { value: '19999' },
  CONNECTIONS: { value: '8191' },
  PIPELINED_REQUESTS: { value: '7' },
  UNKNOWN_LOOKUPS: { value: '3' },
  REQUEST_TIMEOUT_MS: { value: '9999' },
  PAYMENT_TIMEOUT_MS: { value: '59999' },
  UPLOAD_TIMEOUT_MS: { value: '3599999' },
  STREAM_APP_PERCENT: { value: '74' },
  STREAM_CLIENT_PERCENT: { value: '51' },
  TRANSFER_MIN_BYTES_PER_SECOND: { value: '1025' },
  EXPORTS_PER_APP: { value: '3' },
  IMPORTS_PER_APP: { value: '3' },
  IMPORT_MAX_BYTES: {
    value: '1000000',
    effect: async ({ url, app }) => {
      const path = `/api/apps/${app.appId}/collections/docs/import`;
      const sent = { key: app.key, body: 'x'.repeat(1_000_001) };
      expect(await send(url, 'POST', path, sent)).toMatchObject({ status: 413 });
    },
  },
  FEED_STREAMS: limitOf('granary_feed_streams_limit', '4095'),
  FEED_STREAMS_PER_APP: { value: '1023' },
  FEED_STREAMS_PER_KEY: { value: '255' },
  FEED_STREAMS_PER_CLIENT: { value: '7' },
  FEED_STREAM_AGE_MS: { value: '1799999' },
  UPLOAD_GRACE_MS: { value: '19999' },
  DOWNLOAD_GRACE_MS: { value: '59999' },
  TRANSFERS_MAX: { value: '99' },
  UPLOAD_BUFFER_BYTES: { value: '268435455' },
  WRITE_BUFFER_BYTES: { value: '268435455' },
  CALL_BUFFER_BYTES: { value: '67108863' },
  DATABASE_POOL_SIZE: { value: '6' },
  FAST_POOL_SIZE: { value: '3' },
  PIPELINED_POOL_SIZE: { value: '3' },
  PRELOAD_CONCURRENCY: { value: '2' },
  PUBLIC_READ_TIMEOUT_MS: { value: '1999' },
  PUBLIC_READ_ROWS_MAX: { value: '999999' },
  MAINTENANCE_EVERY_MS: { value: '59999' },
  PENDING_GRACE_MS: { value: '299999' },
  SWEEP_AGE_MS: { value: '86399999' },
  SWEEP_EVERY_MS: { value: '21599999' },
  DISK_RESERVE_BYTES: { value: '33554432' },
  DRAIN_DELAY_MS: { value: '999' },
  DRAIN_TIMEOUT_MS: { value: '9998' },
};

/** Settings of both launchers that the tests of a start use throughout. */
export const usedByEveryStart = ['PORT', 'DATA_DIR', 'OPERATOR_KEY'];

/** In place of a setting with a row, which has its value in a file: the tests beside their `config.ts` read them. */
export const valuesInFiles = ['CHAIN_RPC_URLS_FILE', 'EVM_RPC_URLS_FILE', 'SOLANA_RPC_URLS_FILE'];

/** Settings of npm run stack alone; stack-run.test.ts and stack-parts.test.ts start with them. */
export const ofStackAlone = ['BUS', 'STORE', 'DOCKER', 'BLOBS_PRESIGNED', 'BLOBS_DIRECT_READS'];
