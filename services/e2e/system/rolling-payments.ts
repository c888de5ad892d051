import { newPayer, version2, encoded, decoded, type Requirement } from '@granary/testing/x402-client';
import { eventually } from '@granary/testing/eventually';
import { operatorKey } from '../support/granary';
import type { Balanced, Reply, Request } from './rolling-client';

const priceUtia = 250;
const fundsUtia = 50_000_000;
const operator = { 'x-operator-key': operatorKey };

/** The keys with which requests are paid, see `openShop`. */
interface Keys {
  /** May write where that costs something. */
  writer: string;
  /** Pays from the wallet of another application. */
  agent: string;
}

/** Sells reads of `films`, and writes to `orders`, of an application; another one has money to buy them. */
export async function openShop(gateways: Balanced, appId: string, key: string): Promise<Shop> {
  const app = `/api/apps/${appId}`;
  const send = async (method: string, path: string, request: Request): Promise<Reply> => {
    const reply = await gateways.send(method, path, request);
    if (reply.status >= 300) throw new Error(`${method} ${path}: ${reply.status} ${reply.body.toString()}`);
    return reply;
  };
  const price = { pricing_model: 'per_access', price_per_access_utia: priceUtia };
  const films = { name: 'films', read_price_config: price };
  await send('POST', `${app}/collections`, { key, body: films });
  await send('POST', '/store', { key, body: { root: `${appId}::films`, data: [{ id: 'first' }] } });
  await send('POST', `${app}/collections`, { key, body: { name: 'orders', write_pricing: 'on' } });
  const index = {
    name: 'by_topic',
    collection: 'orders',
    field_name: 'topic',
    index_type: 'btree',
    price_config: price,
  };
  await send('POST', `${app}/indexes`, { key, body: index });
  const keyOf = async (path: string, ownKey: string, body: object) =>
    (await send('POST', `${path}/regenerate-key`, { key: ownKey, body })).json<{ app_key: string }>().app_key;
  const writer = await keyOf(app, key, { name: 'writer', permissions: ['Write'] });
  const body = { app_id: `${appId}-buyer`, name: 'Buyer' };
  const made = await send('POST', '/api/applications', { body, headers: operator });
  const buyerKey = made.json<{ app_key: string }>().app_key;
  const buyer = `/api/apps/${body.app_id}`;
  await send('POST', `${buyer}/faucet`, { key: buyerKey, headers: operator, body: { amount: fundsUtia } });
  await eventually(async () => {
    const wallet = await send('GET', `${buyer}/wallet`, { key: buyerKey });
    return wallet.json<{ balance: number }>().balance === fundsUtia;
  }, 60_000);
  const agent = await keyOf(buyer, buyerKey, {
    name: 'agent',
    permissions: ['Pay'],
    pay_limits: { spend_allowance: fundsUtia },
  });
  return new Shop(gateways, appId, { writer, agent });
}

/** Requests that cost something, and are paid. None may fail: nothing is sent twice but to ask its price. */
export class Shop {
  /** The ids of orders that were acknowledged. */
  readonly ordered: string[] = [];

  constructor(
    private readonly gateways: Balanced,
    private readonly appId: string,
    private readonly keys: Keys,
  ) {}

  async readByKey(): Promise<void> {
    this.expectFilms(await this.read({ 'x-agent-key': this.keys.agent }));
  }

  async readByPayment(): Promise<void> {
    this.expectFilms(await this.paid((headers) => this.read(headers)));
  }

  async orderByKey(n: number): Promise<void> {
    this.expectOrder(`key-${n}`, await this.order(`key-${n}`, { 'x-agent-key': this.keys.agent }));
  }

  async orderByPayment(n: number): Promise<void> {
    this.expectOrder(`payment-${n}`, await this.paid((headers) => this.order(`payment-${n}`, headers)));
  }

  private read(headers: Record<string, string>): Promise<Reply> {
    return this.gateways.send('GET', `/api/apps/${this.appId}/collections/films/data`, { headers });
  }

  private order(id: string, headers: Record<string, string>): Promise<Reply> {
    const body = { root: `${this.appId}::orders`, data: [{ id, topic: 'rain' }] };
    return this.gateways.send('POST', '/store', { key: this.keys.writer, body, headers });
  }

  /** Asks what a request costs, and sends it with a payment on the simulated network. */
  private async paid(send: (headers: Record<string, string>) => Promise<Reply>): Promise<Reply> {
    const asked = await send({});
    if (asked.status !== 402) throw new Error(`402 was expected: ${asked.status} ${asked.body.toString()}`);
    const header = asked.headers['payment-required'];
    const [requirement] = decoded<{ accepts: Requirement[] }>(String(header)).accepts;
    const payment = await version2(await newPayer(), requirement!);
    return send({ 'payment-signature': encoded(payment) });
  }

  private expectFilms({ status, body }: Reply): void {
    if (status !== 200) throw new Error(`a read that is paid: ${status} ${body.toString().slice(0, 300)}`);
  }

  private expectOrder(id: string, { status, body }: Reply): void {
    if (status !== 202) throw new Error(`a write that is paid: ${status} ${body.toString().slice(0, 300)}`);
    this.ordered.push(id);
  }
}
