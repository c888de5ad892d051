import { readConfig } from '@granary/shared/config';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { ReadRequest } from '@granary/shared/gen/granary/events/v1/ReadRequest';
import { openClient, targetOf } from '@granary/shared/grpc/client';
import { message, newCall, type Client, type ServiceDefinition } from '@granary/shared/rpc/types';
import type { RunningService } from '@granary/shared/service/start';
import { createLogger } from '@granary/shared/logger';
import { createPool, rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { testDatabase } from '@granary/shared/testing/database';
import { eventuallyResolves } from '@granary/shared/testing/eventually';
import type { ServiceName } from '@granary/shared/trust/services';
import { openTrust } from '@granary/shared/trust/trust';
import { scaledMs } from '@granary/shared/testing/speed';
import { paymentsConfig } from '../src/config';
import { paymentsDefinition, startPayments } from '../src/service';

const log = createLogger('payments-test', 'silent');
const secret = 'a secret that the services share with each other';
const stops: Array<() => Promise<void>> = [];
/** Nothing here moves money. */
const ledger = () => ({ address: '127.0.0.1:1' });

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

type Transport = 'in one process' | 'over gRPC';

async function start(
  transport: Transport,
  url: string,
  environment: Record<string, string> = {},
  now = new Date(),
): Promise<RunningService> {
  const config = readConfig(paymentsConfig, { DATABASE_URL: url, INTERNAL_SECRET: secret, ...environment });
  const service = await startPayments(config, { log, listen: transport === 'over gRPC', now: () => now, ledger });
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

const call = () => newCall('test', scaledMs(10_000));

describe.each(['in one process', 'over gRPC'] as const)('payments, %s', (transport) => {
  test('each start publishes the valid prices; a changed configuration is a new price, and earlier ones stay as history', async () => {
    const { url } = await testDatabase();
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
    const { url } = await testDatabase();
    const address = 'celestia1qyqszqgpqyqszqgpqyqszqgpqyqszqgpreswh3';
    const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1) + seconds * 1_000);
    const offersAt = async (seconds: number) =>
      connect(
        await start(transport, url, { X402_PAY_TO: `cosmos:celestia=${address}` }, at(seconds)),
        paymentsDefinition,
        'gateway',
      );
    const asked = {
      ...{ appId: 'films', operation: 'GET /x', path: '/x', query: '', bodyHash: Buffer.alloc(0), amountUtia: '5' },
      ...{ resource: 'http://127.0.0.1/x', description: 'x', error: 'It costs 5' },
    };
    const first = await (await offersAt(0)).offerRead(asked, call());
    const [{ extra }] = JSON.parse(first.acceptsJson) as [{ extra: { quoteId: string; pricing: object } }];
    expect(extra.pricing).toEqual({ baseAmount: '5', baseAsset: 'utia', expiresAt: at(300).getTime() / 1_000 });
    const paymentJson = Buffer.from(JSON.stringify({ x402Version: 1, quoteId: extra.quoteId }));
    const refused = async (seconds: number, amountUtia = '5') =>
      (await (await offersAt(seconds)).offerRead({ ...asked, amountUtia, paymentJson }, call())).refusedBecause;
    expect(await refused(299)).toBe('settlement_unavailable');
    expect(await refused(299, '6')).toBe('quote_insufficient');
    expect(await refused(300)).toBe('quote_expired');
    // Where payments go elsewhere, an older quote is for nobody.
    const elsewhere = await start(transport, url, { X402_PAY_TO: `cosmos:mocha-4=${address}` }, at(1));
    const offers = connect(elsewhere, paymentsDefinition, 'gateway');
    expect((await offers.offerRead({ ...asked, paymentJson }, call())).refusedBecause).toBe('quote_invalid');
    const nowhere = connect(await start(transport, url, {}, at(1)), paymentsDefinition, 'gateway');
    expect(await nowhere.offerRead(asked, call())).toEqual({ acceptsJson: '[]' });
  });

  test('quotes for encrypted indexes say that they are not implemented', async () => {
    const payments = connect(await start(transport, (await testDatabase()).url), paymentsDefinition, 'gateway');
    const refusal = { code: 'UNIMPLEMENTED', reason: 'NOT_IMPLEMENTED' };
    await expect(payments.quoteEncryptedIndex({ appId: 'films' }, call())).rejects.toMatchObject(refusal);
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

test('an address without its checksum, in capitals, or of a network that is named twice, is refused before anything starts', () => {
  const address = 'celestia1qyqszqgpqyqszqgpqyqszqgpqyqszqgpreswh3';
  const read = (X402_PAY_TO: string) =>
    readConfig(paymentsConfig, { DATABASE_URL: 'postgres://x@127.0.0.1:1/none', X402_PAY_TO });
  const wrong = [
    ...[address, `cosmos:celestia=${address.slice(0, -1)}q`, `cosmos:celestia=${address.toUpperCase()}`],
    ...[`celestia=${address}`, `cosmos:=${address}`, 'cosmos:celestia=', 'cosmos:celestia=celestia1', ','],
    ...[`eip155:1=${address}`, `cosmos:celestia=${address},cosmos:celestia=${address}`],
  ];
  for (const text of wrong) expect(() => read(text)).toThrow('X402_PAY_TO');
  expect(read(`cosmos:celestia=${address}, cosmos:mocha-4=${address}`).X402_PAY_TO).toContain('mocha-4');
});

test('a price that is no whole number from 0 is refused before anything starts', () => {
  for (const wrong of ['-1', '1.5', 'free', '9007199254740992']) {
    const environment = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none', RETENTION_UTIA_PER_GIB_DAY: wrong };
    expect(() => readConfig(paymentsConfig, environment)).toThrow('RETENTION_UTIA_PER_GIB_DAY');
  }
});
