import { randomBytes } from 'node:crypto';
import { readConfig } from '@granary/shared/config';
import { ServiceError } from '@granary/shared/errors';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import { openClient, targetOf } from '@granary/shared/grpc/client';
import { createLogger } from '@granary/shared/logger';
import { createPool, rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { newCall, type Client } from '@granary/shared/rpc/types';
import { serviceDatabase } from '@granary/testing/service-database';
import { eventually } from '@granary/testing/eventually';
import { size } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { newPayer, version2, type Requirement } from '@granary/testing/x402-client';
import { openTrust } from '@granary/shared/trust/trust';
import { paymentsConfig } from '../src/config';
import { paymentsDefinition, paymentsSchema, startPayments } from '../src/service';

const payments = size({ run: 10, long: 50 });
const uses = 200;
const copies = 2;
/** Payments that compete at once: those of more wait so long for a connection that most uses have to be repeated. */
const paymentsAtOnce = 10;
const log = createLogger('payments-test', 'silent');
const secret = 'a secret that the services share with each other';
const call = () => newCall('test', limitMs(60_000));
const stops: Array<() => Promise<void>> = [];

afterAll(async () => {
  for (const stop of stops.reverse()) await stop();
});

/** A copy of the service on the database, as the gateway calls it. Its income stays uncredited: there is no ledger. */
async function startCopy(url: string): Promise<Client<PaymentsDefinition>> {
  const config = readConfig(paymentsConfig, { DATABASE_URL: url, INTERNAL_SECRET: secret, X402_PAY_TO: 'simulated' });
  const nowhere = () => ({ address: '127.0.0.1:1' });
  const service = await startPayments(config, { log, listen: false, ledger: nowhere, data: nowhere });
  const target = targetOf({ implementations: service.implementations }, paymentsDefinition);
  const credentials = () => openTrust('gateway', { INTERNAL_SECRET: secret }, log).towards('payments');
  const opened = openClient(paymentsDefinition, target, { log, credentials });
  stops.push(async () => {
    opened.close();
    await service.stop();
  });
  return opened.client;
}

/** What a payment is worth to one use of it: a grant or nothing; while that is open, the use is repeated. */
async function use(client: Client<PaymentsDefinition>, request: Parameters<typeof client.settlePayment>[0]) {
  return eventually(async () => {
    try {
      const { payment } = await client.settlePayment(request, call());
      return payment && 'granted';
    } catch (error) {
      const reason = error instanceof ServiceError ? (error.details['reason'] ?? error.reason) : error;
      // The database had no connection free; nothing was granted.
      if (reason === 'UNAVAILABLE') return undefined;
      expect(reason).toBe('payment_already_used');
      return 'used';
    }
  });
}

test(`${payments} payments, each used ${uses} times at once at ${copies} copies of the service, give exactly ${payments} grants`, async () => {
  const { url } = await serviceDatabase(paymentsSchema);
  const clients = await Promise.all(Array.from({ length: copies }, () => startCopy(url)));
  const requests = await Promise.all(
    Array.from({ length: payments }, async () => {
      const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia: '1001' };
      const about = { resource: 'https://granary.example/', description: '', error: '' };
      const { header } = await clients[0]!.offerRead({ ...about, purchase }, call());
      const { accepts } = JSON.parse(Buffer.from(header!, 'base64').toString()) as { accepts: Requirement[] };
      const payment = await version2(await newPayer(), accepts[0]!);
      return { purchase, identifier: '', paymentJson: Buffer.from(JSON.stringify(payment)) };
    }),
  );
  const grantsOf = async (request: (typeof requests)[number]) => {
    const outcomes = Array.from({ length: uses }, (_, at) => use(clients[at % copies]!, request));
    return (await Promise.all(outcomes)).filter((outcome) => outcome === 'granted').length;
  };
  const grants: number[] = [];
  for (let at = 0; at < payments; at += paymentsAtOnce) {
    grants.push(...(await Promise.all(requests.slice(at, at + paymentsAtOnce).map(grantsOf))));
  }
  expect(grants).toEqual(requests.map(() => 1));
  const pool = createPool({ url, size: 1, applicationName: 'payments-test', log });
  stops.push(() => pool.end());
  const claims = await rows(
    pool,
    sql`select state, count(*)::int as claims, (select count(*)::int from simulated_evm_transfer) as transfers
        from claim group by state`,
  );
  expect(claims).toEqual([{ state: 'granted', claims: payments, transfers: payments }]);
});
