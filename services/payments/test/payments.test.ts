import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '@granary/shared/config';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { ReadRequest } from '@granary/shared/gen/granary/events/v1/ReadRequest';
import { openClient, targetOf } from '@granary/shared/grpc/client';
import { message, newCall, type Client, type ServiceDefinition } from '@granary/shared/rpc/types';
import type { RunningService } from '@granary/shared/service/start';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { createLogger } from '@granary/shared/logger';
import { createPool, rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { serviceDatabase } from '@granary/testing/service-database';
import { eventuallyResolves } from '@granary/testing/eventually';
import type { ServiceName } from '@granary/shared/trust/services';
import { openTrust } from '@granary/shared/trust/trust';
import { limitMs } from '@granary/testing/speed';
import {
  decoded,
  newPayer,
  simulatedName,
  simulatedNetwork,
  version1,
  type Requirement,
} from '@granary/testing/x402-client';
import { paymentsConfig } from '../src/config';
import { parsePaymentAddresses } from '../src/settings/payment-addresses';
import { paymentsDefinition, paymentsSchema, startPayments } from '../src/service';

const log = createLogger('payments-test', 'silent');
const secret = 'a secret that the services share with each other';
const stops: Array<() => Promise<void>> = [];
/** Nothing here moves money, and nothing is written. */
const elsewhere = { ledger: () => ({ address: '127.0.0.1:1' }), data: () => ({ address: '127.0.0.1:1' }) };

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** The header PAYMENT-REQUIRED. */
interface Required {
  error: string;
  resource: { url: string; description: string };
  accepts: Requirement[];
}

type Transport = 'in one process' | 'over gRPC';

async function start(
  transport: Transport,
  url: string,
  environment: Record<string, string> = {},
  now = new Date(),
): Promise<RunningService> {
  const config = readConfig(paymentsConfig, { DATABASE_URL: url, INTERNAL_SECRET: secret, ...environment });
  const service = await startPayments(config, { log, listen: transport === 'over gRPC', now: () => now, ...elsewhere });
  stops.push(() => service.stop());
  return service;
}

/** A client of one of the parts of a service, with the rights of another service. */
function connect<D extends ServiceDefinition>(service: RunningService, definition: D, caller: ServiceName): Client<D> {
  const { address, implementations } = service;
  const opened = openClient(definition, targetOf(address ? { address } : { implementations }, definition), {
    log,
    credentials: () => openTrust(caller, { INTERNAL_SECRET: secret }, log).towards('payments'),
  });
  stops.push(async () => opened.close());
  return opened.client;
}

const startOutbox = async (...options: Parameters<typeof start>) =>
  connect(await start(...options), outboxDefinition, 'finance');

/** The prices that finance reads from the outbox. */
async function published(outbox: Client<OutboxDefinition>): Promise<unknown[]> {
  const request = message<ReadRequest>({
    consumer: 'finance-payments',
    after: null,
    limit: 100,
    topics: ['prices'],
    waitMs: 0,
  });
  const { events } = await outbox.read(request, call());
  expect(events.map(({ aggregateSequence }) => aggregateSequence)).toEqual(events.map((_, at) => String(at + 1)));
  return events.map(({ payload }) => JSON.parse(payload.toString()) as unknown);
}

const call = () => newCall('test', limitMs(10_000));

describe.each(['in one process', 'over gRPC'] as const)('payments, %s', (transport) => {
  test('each start publishes the valid prices; a changed configuration is a new price, and earlier ones stay as history', async () => {
    const { url } = await serviceDatabase(paymentsSchema);
    const day = (number: number) => new Date(Date.UTC(2026, 0, number));
    const usual = { retention_utia_per_gib_day: '1000', retention_free_days: 30 };
    const outbox = await startOutbox(transport, url, {}, day(2));
    await eventuallyResolves(async () =>
      expect(await published(outbox)).toEqual([{ ...usual, since: day(2).toISOString() }]),
    );
    // The same again, by two copies at once, changes nothing.
    await Promise.all([start(transport, url, {}, day(3)), start(transport, url, {}, day(3))]);
    const dearer = { RETENTION_UTIA_PER_GIB_DAY: '9007199254740991', RETENTION_FREE_DAYS: '0' };
    await start(transport, url, dearer, day(4));
    // A clock that went back does not bring an old price back.
    await start(transport, url, {}, day(1));
    await eventuallyResolves(async () =>
      expect(await published(outbox)).toEqual([
        ...[1, 2, 3].map(() => ({ ...usual, since: day(2).toISOString() })),
        { retention_utia_per_gib_day: '9007199254740991', retention_free_days: 0, since: day(4).toISOString() },
        { ...usual, since: day(4).toISOString() },
      ]),
    );

    const pool = createPool({ url, size: 1, applicationName: 'payments-test', log });
    stops.push(() => pool.end());
    const history = await rows<{ amount: bigint; valid_from: Date }>(
      pool,
      sql`select amount, valid_from from price where name = 'retention_utia_per_gib_day' order by valid_from`,
    );
    expect(history).toEqual([
      { amount: 1000n, valid_from: day(2) },
      { amount: 9007199254740991n, valid_from: day(4) },
      { amount: 1000n, valid_from: day(4) },
    ]);
  });

  test('a quote is valid for five minutes, in each copy of the service and after a restart', async () => {
    const { url } = await serviceDatabase(paymentsSchema);
    const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1) + seconds * 1_000);
    const offersAt = async (seconds: number, settings: Record<string, string> = { X402_PAY_TO: 'simulated' }) =>
      connect(await start(transport, url, settings, at(seconds)), paymentsDefinition, 'gateway');
    const asked = {
      purchase: { appId: 'films', requestHash: Buffer.alloc(32), amountUtia: '5' },
      resource: 'http://127.0.0.1/x',
      description: 'x',
      error: 'It costs 5',
    };
    const first = await (await offersAt(0)).offerRead(asked, call());
    const [requirement] = JSON.parse(first.acceptsJson) as [Requirement];
    expect(requirement.extra['pricing']).toEqual({
      baseAmount: '5',
      baseAsset: 'utia',
      expiresAt: at(300).getTime() / 1_000,
    });
    const validBefore = String(at(330).getTime() / 1_000);
    const payment = await version1(await newPayer(), requirement, { changes: { validBefore } });
    const paid = { purchase: asked.purchase, paymentJson: Buffer.from(JSON.stringify(payment)), identifier: '' };
    const refusal = (reason: string) => ({ reason: 'PAYMENT_REFUSED', details: { reason } });
    const check = async (seconds: number, amountUtia = '5', presented = paid) =>
      (await offersAt(seconds)).checkPayment({ ...presented, purchase: { ...asked.purchase, amountUtia } }, call());
    expect(await check(299)).toMatchObject({ paidUtia: '5' });
    await expect(check(299, '6')).rejects.toMatchObject(refusal('quote_insufficient'));
    await expect(check(300)).rejects.toMatchObject(refusal('quote_expired'));
    // Nothing is sent by payers on this network, so the name of a transaction changes nothing.
    const named = { ...payment, payload: { ...payment.payload, txHash: 'ab'.repeat(32) } };
    const paidByName = { ...paid, paymentJson: Buffer.from(JSON.stringify(named)) };
    expect(await check(299, '5', paidByName)).toMatchObject({ paidUtia: '5' });
    await expect(check(299, '6', paidByName)).rejects.toMatchObject(refusal('quote_insufficient'));
    await expect(check(300, '5', paidByName)).rejects.toMatchObject(refusal('quote_expired'));
    // Where payments go elsewhere, an older quote is for nobody.
    const keyFile = join(await mkdtemp(join(tmpdir(), 'granary-gas-')), 'seed');
    await makeSeedFile(keyFile);
    const network = {
      X402_PAY_TO: `eip155:84532=${requirement.payTo}`,
      EVM_RPC_URLS: 'eip155:84532=http://127.0.0.1:1',
    };
    const elsewhere = await offersAt(1, { ...network, X402_KEY_FILE: keyFile, X402_RATES: 'usdc-test=4200000' });
    await expect(elsewhere.checkPayment(paid, call())).rejects.toMatchObject(refusal('quote_invalid'));
    const nowhere = connect(await start(transport, url, {}, at(1)), paymentsDefinition, 'gateway');
    expect(await nowhere.offerRead(asked, call())).toEqual({ acceptsJson: '[]' });
  });

  test('what is not settled is not offered: a Cosmos chain before it is known to be that of the wallets', async () => {
    const { url } = await serviceDatabase(paymentsSchema);
    const address = 'celestia1qyqszqgpqyqszqgpqyqszqgpqyqszqgpreswh3';
    const chain = 'cosmos:granary-simulated-1';
    const settings = { X402_PAY_TO: `${chain}=${address},simulated` };
    const payments = connect(await start(transport, url, settings), paymentsDefinition, 'gateway');
    const purchase = { appId: 'films', requestHash: Buffer.alloc(32), amountUtia: '5' };
    const about = { resource: 'http://127.0.0.1/x', description: 'x', error: 'It costs 5' };
    const offer = await payments.offerRead({ purchase, ...about }, call());
    const accepts = JSON.parse(offer.acceptsJson) as Requirement[];
    expect(accepts.map(({ network }) => network)).toEqual([simulatedName]);
    const header = decoded<{ accepts: Requirement[] }>(offer.header!);
    expect(header.accepts.map(({ network }) => network)).toEqual([simulatedNetwork]);
    const payment = { x402Version: 1, scheme: 'exact', network: chain, payload: {} };
    const paid = { purchase, paymentJson: Buffer.from(JSON.stringify(payment)), identifier: '' };
    const later = { code: 'UNAVAILABLE', message: expect.stringContaining('not known yet') as string };
    await expect(payments.checkPayment(paid, call())).rejects.toMatchObject(later);
  });

  test('a header that would be too long leaves out offers from the end, after it has shortened long texts', async () => {
    const { url } = await serviceDatabase(paymentsSchema);
    const tokens = Array.from({ length: 63 }, (_, at) => `${simulatedNetwork}/0x${String(at).padStart(40, '0')}`);
    const settings = {
      X402_PAY_TO: 'simulated',
      X402_EVM_ASSETS: tokens.map((token) => `${token}=${'N'.repeat(64)}:${'2'.repeat(16)}`).join(),
      X402_RATES: tokens.map((token) => `${token}=4200000`).join(),
    };
    const many = connect(await start(transport, url, settings), paymentsDefinition, 'gateway');
    const purchase = { appId: 'a'.repeat(63), requestHash: Buffer.alloc(32), amountUtia: '9007199254740991' };
    const path = `/api/apps/${purchase.appId}/collections/${'c'.repeat(63)}/documents/${'%F0%9F%98%80'.repeat(256)}`;
    const short = { resource: 'https://a.example/x?y=z', description: 'A read of /x', error: 'It costs 5' };
    const long = { ...short, resource: `https://a.example:8443${path}?y=z`, description: `A write to ${path}` };
    const read = async (payments: typeof many, texts: typeof short) => {
      const { acceptsJson, header } = await payments.offerRead({ purchase, ...texts }, call());
      expect(header!.length).toBeLessThanOrEqual(8_000);
      const assets = (accepts: Requirement[]) => accepts.map(({ asset }) => asset);
      const { resource, error, accepts } = decoded<Required>(header!);
      expect(error).toBe(texts.error);
      return { all: assets(JSON.parse(acceptsJson) as Requirement[]), listed: assets(accepts), resource };
    };
    const addresses = tokens.map((token) => token.split('/')[1]);
    for (const [texts, resource] of [
      [short, { url: 'https://a.example/x', description: short.description }],
      [long, { url: 'https://a.example:8443', description: `${long.description.slice(0, 500)}…` }],
    ] as const) {
      const { all, listed, resource: shown } = await read(many, texts);
      expect(all).toEqual([...addresses, expect.stringMatching(/^0x/)]);
      expect(listed.length).toBeGreaterThanOrEqual(3);
      expect(listed).toEqual(all.slice(0, listed.length));
      expect(shown).toMatchObject(resource);
    }
    // Where few are offered, long texts give way to all of them.
    const few = connect(await start(transport, url, { X402_PAY_TO: 'simulated' }), paymentsDefinition, 'gateway');
    const { all, listed, resource } = await read(few, long);
    expect([listed, resource.url]).toEqual([all, 'https://a.example:8443']);
    const whole = await read(few, short);
    expect([whole.listed, whole.resource.url]).toEqual([all, short.resource]);
  });

  test('an encrypted index costs what the operator says', async () => {
    const { url } = await serviceDatabase(paymentsSchema);
    const usual = connect(await start(transport, url), paymentsDefinition, 'gateway');
    expect(await usual.priceEncryptedIndex({}, call())).toEqual({ amountUtia: '1000000' });
    const other = connect(await start(transport, url, { ENCRYPTED_INDEX_UTIA: '7' }), paymentsDefinition, 'gateway');
    expect(await other.priceEncryptedIndex({}, call())).toEqual({ amountUtia: '7' });
  });
});

test('a fee that is no percentage, or whose volumes do not ascend, is refused before anything starts', () => {
  const read = (fee: string) =>
    readConfig(paymentsConfig, { DATABASE_URL: 'postgres://x@127.0.0.1:1/none', BROKER_FEE_PERCENT: fee });
  for (const wrong of ['-1', '101', '1.234', '20%', '5:20', '0:20,0:10', '0:20,9:10,9:5', '1,,2', '0:1,2:100.01']) {
    expect(() => read(wrong)).toThrow('BROKER_FEE_PERCENT');
  }
  for (const right of ['0', '100', '12.5', '0:20', '20,1000:0', '0:20,1000:12.25,999999999999999:0']) {
    expect(read(right).BROKER_FEE_PERCENT).toBe(right);
  }
});

test('an address without its checksum, in capitals, of a network that is named twice, or of a second Cosmos chain, is refused before anything starts', () => {
  const address = 'celestia1qyqszqgpqyqszqgpqyqszqgpqyqszqgpreswh3';
  const read = (X402_PAY_TO: string) =>
    readConfig(paymentsConfig, { DATABASE_URL: 'postgres://x@127.0.0.1:1/none', X402_PAY_TO });
  const wrong = [
    address,
    `cosmos:celestia=${address.slice(0, -1)}q`,
    `cosmos:celestia=${address.toUpperCase()}`,
    `celestia=${address}`,
    `cosmos:=${address}`,
    'cosmos:celestia=',
    'cosmos:celestia=celestia1',
    ',',
    `eip155:1=${address}`,
    'eip155:1=0x12',
    'simulated,simulated',
    `cosmos:celestia=${address},cosmos:celestia=${address}`,
    // Of the Cosmos chains, payments are settled on that of the wallets.
    `cosmos:celestia=${address},cosmos:mocha-4=${address}`,
    `wallets,cosmos:celestia=${address}`,
  ];
  for (const text of wrong) expect(() => read(text)).toThrow('X402_PAY_TO');
  expect(read(`simulated, cosmos:granary-simulated-1=${address}`).X402_PAY_TO).toContain('celestia');
  expect(() => read(`simulated,cosmos:celestia=${address}`)).toThrow(
    'X402_PAY_TO: payments are taken in money of one kind',
  );
});

test('an EVM address of a setting whose capitals are not its checksum is refused before anything starts', () => {
  const right = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
  const mistyped = right.replace('5', '6');
  const read = (name: string, value: string) =>
    readConfig(paymentsConfig, { DATABASE_URL: 'postgres://x@127.0.0.1:1/none', [name]: value });
  const settings = {
    X402_PAY_TO: (address: string) => `eip155:8453=${address}`,
    X402_EVM_ASSETS: (address: string) => `eip155:8453/${address}=USD Coin:2`,
    X402_RATES: (address: string) => `eip155:8453/${address}=4200000`,
  };
  for (const [name, valueOf] of Object.entries(settings)) {
    expect(() => read(name, valueOf(mistyped))).toThrow(new RegExp(`${name}: .*EIP-55`));
    const upper = `0x${right.slice(2).toUpperCase()}`;
    for (const address of [right, right.toLowerCase(), upper, mistyped.toLowerCase()]) read(name, valueOf(address));
  }
  expect(() => read('X402_PAY_TO', settings.X402_PAY_TO(mistyped))).toThrow('the address on eip155:8453 is mistyped');
  // Clients would take the capitals for a checksum that does not fit.
  const [taken] = parsePaymentAddresses(settings.X402_PAY_TO(`0x${right.slice(2).toUpperCase()}`));
  expect(taken).toEqual({ network: 'eip155:8453', address: right.toLowerCase() });
});

test('a price that is no whole number from 0 is refused before anything starts', () => {
  for (const wrong of ['-1', '1.5', 'free', '9007199254740992']) {
    const environment = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none', RETENTION_UTIA_PER_GIB_DAY: wrong };
    expect(() => readConfig(paymentsConfig, environment)).toThrow('RETENTION_UTIA_PER_GIB_DAY');
  }
});
