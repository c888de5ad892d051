import { execFileSync } from 'node:child_process';
import { chmod, cp, mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { openDataDirectory } from '@granary/local/postgres/data-directory';
import { identify } from '@granary/local/processes/processes';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { StartError } from '@granary/shared/start-error';
import { eventually } from '@granary/testing/eventually';
import { seedOf } from '@granary/testing/seeds';
import { isLong } from '@granary/testing/size';
import { send } from '../support/granary';
import { endAllProcesses, OwnStart } from '../support/own-process';

const isRoot = process.getuid?.() === 0;
let base: string;
beforeAll(async () => {
  base = await mkdtemp(path.join(os.tmpdir(), 'granary-failures-'));
  // Postgres runs as another user under root, and must come through.
  await chmod(base, 0o755);
});
afterAll(async () => {
  await endAllProcesses();
  await rm(base, { recursive: true, force: true });
});

const ways = ['npm start', 'npm run stack'] as const;
type Way = (typeof ways)[number];
/** Where both run the same code: one of them by the seed of the run, and both in the long run. */
const waysInTurn = isLong ? ways : [ways[seedOf('start-failures') % ways.length]!];

/** Starts it and expects that it ends with 1 and nothing but sentences. */
async function failureOf(way: Way, dataDir: string, settings: Record<string, string> = {}): Promise<string> {
  const started = await OwnStart.launch(way, dataDir, settings);
  expect(await started.exit).toBe(1);
  const lines = started.output().trim().split('\n');
  // What npm run stack starts logs in lines with its name in front.
  const said = lines.filter((line) => !/^(Starting on |\w+ +\| )/.test(line));
  for (const line of said) expect(line).not.toMatch(/^\{|^\s+at /);
  return said.join('\n');
}

const own = (name: string) => path.join(base, name);
const onBase = 'eip155:8453=0x00000000000000000000000000000000000000aa';

describe('an unusable data directory', () => {
  test.each(ways)('a file as the data directory is refused in a sentence by %s', async (way) => {
    await writeFile(own('file'), '');
    expect(await failureOf(way, own('file'))).toBe(
      `The data directory ${own('file')} cannot be used: it is not a directory. Choose another with --data-dir (DATA_DIR).`,
    );
  });

  const open = (explicit: string) => openDataDirectory({ explicit, defaultDir: '.granary', say: () => {} });

  test('a path below a file is refused in a sentence', async () => {
    await writeFile(own('file'), '');
    const dataDir = path.join(own('file'), 'a/b');
    const sentence = `The data directory ${dataDir} cannot be used: ${own('file')} is not a directory. Choose another with --data-dir (DATA_DIR).`;
    await expect(open(dataDir)).rejects.toEqual(new StartError(sentence));
  });

  test('a directory that cannot be written is refused in a sentence', async () => {
    // Nobody may make a folder in /sys, not even root, to whom modes mean nothing.
    const closed = isRoot ? '/sys' : own('closed');
    if (!isRoot) await mkdir(closed, { mode: 0o555 });
    const dataDir = path.join(closed, 'granary');
    const sentence = new RegExp(
      `^The data directory ${dataDir} cannot be used: (the user "\\S+" may not write in ${closed}|the file system is read-only)\\. Choose another`,
    );
    const refused = open(dataDir);
    await expect(refused).rejects.toThrow(sentence);
    await expect(refused).rejects.toBeInstanceOf(StartError);
  });

  test('a directory on a disk that is too small is refused in a sentence', async () => {
    const options = { explicit: own('small'), defaultDir: '.granary', say: () => {} };
    await expect(openDataDirectory({ ...options, newClusterBytes: 1024 ** 5 })).rejects.toThrow(
      /is on a disk that is full or too small: a new database needs 1073741824 MiB, and \d+ MiB are free\. Free some space/,
    );
    await expect(openDataDirectory({ ...options, newClusterBytes: 1 })).resolves.toBe(own('small'));
  });
});

describe('an unusable address', () => {
  let taken: Server;
  let port: string;
  beforeAll(async () => {
    taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    port = String((taken.address() as AddressInfo).port);
  });
  afterAll(() => new Promise((resolve) => taken.close(resolve)));

  test.each(ways)('a port in use is refused in a sentence by %s', async (way) => {
    expect(await failureOf(way, own('data'), { PORT: port })).toBe(
      `Cannot listen on 127.0.0.1:${port}: the port is taken. Stop the program that has it, or choose another port with --port (PORT; 0 for any free one).`,
    );
  });

  test('METRICS_LISTEN on a port in use is refused in a sentence', async () => {
    expect(await failureOf('npm start', own('data'), { METRICS_LISTEN: `127.0.0.1:${port}` })).toContain(
      `METRICS_LISTEN: 127.0.0.1:${port} cannot be taken`,
    );
  });

  test.each(waysInTurn)('a HOST of another machine is refused in a sentence by %s', async (way) => {
    expect(await failureOf(way, own('data'), { HOST: '192.0.2.1' })).toMatch(
      /^Cannot listen on 192\.0\.2\.1(:\d+)?: this machine has no such address\. Use one of its own, or 0\.0\.0\.0 for all/,
    );
  });
});

test.each(ways)('all invalid settings of %s are reported together, before anything is created', async (way) => {
  const wrong = { PORT: 'abc', MAX_BLOB_BYTES: '-1', LOG_LEVEL: 'loud', ADDRESS_PREFIX: 'X', SHOW_KEYS: 'perhaps' };
  const said = await failureOf(way, own('never'), { ...wrong, KEEP_ALIVE_TIMEOUT_MS: '1.5' });
  expect(said).toMatch(/^The configuration is wrong:\n/);
  expect(said).toContain('  PORT: a whole number from 0 to 65535 is expected');
  expect(said).toContain('  KEEP_ALIVE_TIMEOUT_MS: a whole number from 0 to 3600000 is expected');
  for (const name of Object.keys(wrong)) expect(said).toContain(`\n  ${name}: `);
  expect(await readdir(base)).not.toContain('never');
});

test.each(waysInTurn)(
  '%s ends with a sentence where X402_PAY_TO names a Cosmos chain on which nothing is settled',
  async (way) => {
    const payTo = 'cosmos:celestia=celestia1qyqszqgpqyqszqgpqyqszqgpqyqszqgpreswh3';
    const started = await OwnStart.launch(way, own(`other-chain-${way.split(' ').at(-1)}`), { X402_PAY_TO: payTo });
    expect(await started.exit).toBe(1);
    // It is known once finance has answered, which may be after the start.
    expect(started.output()).toMatch(
      /X402_PAY_TO names cosmos:celestia, but .* on that of the wallets only, (cosmos:granary-simulated-\w+)\. Set X402_PAY_TO=wallets, or name \1 with an address, or /,
    );
    expect(started.output()).not.toMatch(/^\s+at /m);
  },
);

test.each(waysInTurn)('%s refuses play money beside real money, before anything is created', async (way) => {
  const said = await failureOf(way, own('never'), { X402_PAY_TO: `wallets,simulated,${onBase}` });
  expect(said).toContain('X402_PAY_TO: payments are taken in money of one kind only, not on simulated (play money) ');
  expect(await readdir(base)).not.toContain('never');
});

test.each(waysInTurn)(
  '%s ends with a sentence where real money would be credited to wallets of play money',
  async (way) => {
    const keyFile = own('gas-seed');
    await makeSeedFile(keyFile);
    const node = { EVM_RPC_URLS: 'eip155:8453=http://127.0.0.1:1', X402_KEY_FILE: keyFile };
    const started = await OwnStart.launch(way, own('real-money'), { X402_PAY_TO: onBase, ...node });
    expect(await started.exit).toBe(1);
    expect(started.output()).toContain(
      'X402_PAY_TO: the wallets are on a simulated chain (CHAIN), from which nobody can ',
    );
    expect(started.output()).not.toMatch(/^\s+at /m);
  },
);

describe('an existing data directory', () => {
  let dataDir: string;
  beforeAll(async () => {
    dataDir = own('used');
    const started = await OwnStart.ready('npm start', dataDir);
    const note = JSON.parse(await readFile(path.join(dataDir, 'running.json'), 'utf8')) as { process: string };
    expect(identify(Number(note.process.split('-')[0]))).toBe(note.process);
    expect(await failureOf('npm start', dataDir)).toMatch(/^Granary is already running on .*\. Stop it, or choose/);
    await started.end('SIGTERM');
    expect(await readdir(dataDir)).not.toContain('running.json');
  });

  test.each(waysInTurn)('%s refuses a seed that others may read', async (way) => {
    const seed = path.join(dataDir, 'wallet-seed');
    await chmod(seed, 0o644);
    expect(await failureOf(way, dataDir)).toContain(
      `is open to others: only its owner may have rights on it. Run chmod 600 ${seed}`,
    );
    await chmod(seed, 0o600);
  });

  test('X402_PAY_TO may name the chain of the wallets, with another address on it', async () => {
    const cosmosOf = async ({ url }: OwnStart) =>
      eventually(async () => /"(cosmos:[^"]+)"/.exec((await send(url, 'GET', '/x402/supported')).text)?.[1]);
    const first = await OwnStart.ready('npm start', dataDir);
    const chain = await cosmosOf(first);
    await first.end('SIGTERM');
    const address = 'celestia1qyqszqgpqyqszqgpqyqszqgpqyqszqgpreswh3';
    const started = await OwnStart.ready('npm start', dataDir, { X402_PAY_TO: `${chain}=${address}` });
    const { appId, key } = started.app;
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: 5 };
    const path = `/api/apps/${appId}/collections`;
    await send(started.url, 'POST', path, { key, body: { name: 'priced', read_price_config } });
    const accepts = await eventually(async () => {
      const { body } = await send<{ accepts: object[] }>(started.url, 'GET', `${path}/priced/data`);
      return body.accepts.length > 0 && body.accepts;
    });
    expect(accepts).toMatchObject([{ network: chain, payTo: address }]);
    await started.end('SIGTERM');
  });

  test('another ADDRESS_PREFIX than that of the directory is refused', async () => {
    expect(await failureOf('npm start', dataDir, { ADDRESS_PREFIX: 'cosmos' })).toContain(
      'Start with ADDRESS_PREFIX=celestia',
    );
  });

  test('a copy of the directory with lost owners, as by cp -r as root, starts', async () => {
    const copy = own('copy');
    if (isRoot) execFileSync('cp', ['-r', dataDir, copy]);
    else await cp(dataDir, copy, { recursive: true });
    const started = await OwnStart.ready('npm start', copy);
    expect(started.app).toEqual(JSON.parse(await readFile(path.join(dataDir, 'demo-app.json'), 'utf8')));
    await started.end('SIGTERM');
    if (isRoot) expect((await stat(path.join(copy, 'postgres/PG_VERSION'))).uid).not.toBe(0);
  });
});
