import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { newCosmosPayer, signCosmos } from '@granary/testing/cosmos-payer';
import { eventually } from '@granary/testing/eventually';
import { encoded, newPayer, simulatedName, version1, type Requirement } from '@granary/testing/x402-client';
import { withDatabase } from './backup-subject';
import { newApp, operatorKey, send, type Answer, type Body } from '../support/granary';
import type { OwnGranary } from '../support/own-process';
import { newWallet, signedHeaders, signedRequest } from '../support/wallet-signing';

type Headers = Record<string, string>;

interface Answered extends Record<string, unknown> {
  accepts?: Requirement[];
  status?: string;
  details?: { reason?: string };
}

/** What clients pay for, on a Granary that is killed and started again. */
export interface Shop {
  granary: () => OwnGranary;
  dataDir: string;
  /** May write to the collection `notes`, where that costs something. */
  writeKey: string;
}

/** Clients that pay one time after the other, until they are stopped. */
export class PayingClients {
  /** Payments that have ended. */
  ended = 0;
  private isStopped = false;
  private failure: Error | undefined;
  private readonly loops: Array<Promise<void>>;

  constructor(clients: ReadonlyArray<() => Promise<void>>) {
    this.loops = clients.map((pay) => this.run(pay).catch((error: Error) => void (this.failure ??= error)));
  }

  async more(count: number): Promise<void> {
    const goal = this.ended + count;
    await eventually(() => {
      this.assertNoFailure();
      return this.ended >= goal;
    });
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    await Promise.all(this.loops);
    this.assertNoFailure();
  }

  private async run(pay: () => Promise<void>): Promise<void> {
    while (!this.isStopped) {
      await pay();
      this.ended += 1;
    }
  }

  private assertNoFailure(): void {
    if (this.failure) throw this.failure;
  }
}

/** Undefined while Granary is away. */
const request = (shop: Shop, method: string, path: string, body: Body, headers: Headers, key?: string) =>
  send<Answered>(shop.granary().url, method, path, { key, body, headers }).catch(() => undefined);

const filmsPath = ({ granary }: Shop) => `/api/apps/${granary().app.appId}/collections/films/data`;

export const readFilms = (shop: Shop, headers: Headers = {}) =>
  request(shop, 'GET', filmsPath(shop), undefined, headers);

const writeNote = (shop: Shop, id: string, headers: Headers) => {
  const body = { root: `${shop.granary().app.appId}::notes`, data: [{ id }] };
  return request(shop, 'POST', '/store', body, headers, shop.writeKey);
};

/** The requirement of a network, as soon as it is asked for. */
export async function asked(
  ask: () => Promise<Answer<Answered> | undefined>,
  isWanted: (network: string) => boolean,
): Promise<Requirement> {
  for (;;) {
    const answer = await ask();
    const requirement = answer?.body.accepts?.find(({ network }) => isWanted(network));
    if (requirement) return requirement;
    await delay(20);
  }
}

export const isSimulated = (network: string): boolean => network === simulatedName;
const isOfWallets = (network: string): boolean => network.startsWith('cosmos:');

/** Repeats a paid request until it is answered with what it pays for. */
async function untilServed(ask: () => Promise<Answer<Answered> | undefined>, served: number): Promise<void> {
  for (;;) {
    const answer = await ask();
    if (answer?.status === served && answer.body.status !== 'PaymentConfirming') return;
    const reason = answer?.body.details?.reason;
    // A network is closed while its chain does not answer, as that of a busy machine.
    const isForGood = reason !== undefined && reason !== 'settlement_unavailable';
    if (isForGood) throw new Error(`the payment was refused: ${reason}`);
    await delay(20);
  }
}

/** Writes a document for each payment on the simulated network. */
export async function newWriter(shop: Shop): Promise<() => Promise<void>> {
  const payer = await newPayer();
  return async () => {
    const id = randomUUID();
    const requirement = await asked(() => writeNote(shop, id, {}), isSimulated);
    const headers = { 'x-payment': encoded(await version1(payer, requirement)) };
    await untilServed(() => writeNote(shop, id, headers), 202);
  };
}

/** Pays money of the faucet out to an address of the chain. */
async function fund(shop: Shop, address: string, amount: number): Promise<void> {
  const rich = await newApp(shop.granary());
  const operator = { 'x-operator-key': operatorKey };
  await rich.call('POST', `/api/apps/${rich.appId}/faucet`, { amount: 2 * amount }, operator);
  const payout = { amount, payout_address: address };
  await eventually(
    async () => (await rich.call('POST', `/api/apps/${rich.appId}/payout/trigger`, payout)).status === 202,
  );
  await eventually(async () => (await accountOf(shop, address)).balance === amount);
}

/** An account of the simulated chain. */
async function accountOf({ dataDir }: Shop, address: string) {
  const text = 'select number::text, balance::float8 from simulated_account where address = $1';
  const { rows } = await withDatabase(dataDir, 'finance', (client) =>
    client.query<{ number: string; balance: number }>(text, [address]),
  );
  return rows[0] ?? { number: '', balance: 0 };
}

/** Somebody whose wallet pays, and what he has spent. */
export interface Spender {
  clients: ReadonlyArray<() => Promise<void>>;
  /** What has left the wallet. */
  spent(): Promise<number>;
}

/** Reads and writes by the key of a grant, each as one request with an Idempotency-Key: its answer is never lost. */
export async function newGranter(
  shop: Shop,
  amount: number,
): Promise<Spender & { taken(): Promise<number | undefined> }> {
  const wallet = newWallet();
  await fund(shop, wallet.address, amount);
  const grants = '/api/authz/grants';
  const text = JSON.stringify({ limit_utia: amount });
  const made = await send<{ user_key: string }>(shop.granary().url, 'POST', grants, {
    body: Buffer.from(text),
    headers: signedRequest(wallet, 'POST', grants, text),
  });
  expect(made.status).toBe(201);
  const paying = () => ({ 'x-user-key': made.body.user_key, 'idempotency-key': randomUUID() });
  const read = async () => {
    const headers = paying();
    await untilServed(() => readFilms(shop, headers), 200);
  };
  const write = async () => {
    const [headers, id] = [paying(), randomUUID()];
    await untilServed(() => writeNote(shop, id, headers), 202);
  };
  return {
    clients: [read, write],
    spent: async () => amount - (await accountOf(shop, wallet.address)).balance,
    taken: async () => {
      const headers = signedHeaders(wallet, grants);
      const listed = await send<{ grants: Array<{ spent_utia: number }> }>(shop.granary().url, 'GET', grants, {
        headers,
      });
      return listed.body.grants[0]?.spent_utia;
    },
  };
}

/** Reads by transactions that the payer has signed, each as one request with an Idempotency-Key. */
export async function newSigner(shop: Shop, amount: number, fee: bigint): Promise<Spender> {
  const payer = newCosmosPayer();
  await fund(shop, payer.address, amount);
  const { number } = await accountOf(shop, payer.address);
  let sequence = 0n;
  const read = async () => {
    const { network, payTo, maxAmountRequired, extra } = await asked(() => readFilms(shop), isOfWallets);
    const signedTx = signCosmos(payer, {
      chainId: network.slice('cosmos:'.length),
      accountNumber: BigInt(number),
      sequence,
      denom: 'utia',
      fee: { amount: fee, gas: 150_000n },
      timeoutHeight: 0n,
      memo: extra.quoteId,
      outputs: [{ address: payTo, amount: BigInt(maxAmountRequired!) }],
    });
    const payload = { signedTx: signedTx.toString('base64'), accountNumber: number };
    const payment = encoded({ x402Version: 1, scheme: 'exact', network, payload });
    const headers = { 'x-payment': payment, 'idempotency-key': randomUUID() };
    await untilServed(() => readFilms(shop, headers), 200);
    sequence += 1n;
  };
  return { clients: [read], spent: async () => amount - (await accountOf(shop, payer.address)).balance };
}
