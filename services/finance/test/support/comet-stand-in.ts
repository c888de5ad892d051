import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { BaseAccount } from 'cosmjs-types/cosmos/auth/v1beta1/auth';
import { QueryAccountRequest, QueryAccountResponse } from 'cosmjs-types/cosmos/auth/v1beta1/query';
import { Grant } from 'cosmjs-types/cosmos/authz/v1beta1/authz';
import { QueryGrantsRequest, QueryGrantsResponse } from 'cosmjs-types/cosmos/authz/v1beta1/query';
import { SendAuthorization } from 'cosmjs-types/cosmos/bank/v1beta1/authz';
import {
  QueryBalanceRequest,
  QueryBalanceResponse,
  QuerySpendableBalanceByDenomRequest,
  QuerySpendableBalanceByDenomResponse,
} from 'cosmjs-types/cosmos/bank/v1beta1/query';
import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { blockEvents, type BlockTransaction } from './comet-events';
import type { SimulatedNode } from '../../src/simulated-chain/simulated-node';

/** How a node misbehaves; it may be changed at any time. */
export interface Faults {
  /** `garbage`: HTML; `unavailable`: 503; `nothing`: no answer at all; `flood`: an answer without end. */
  answer?: 'garbage' | 'unavailable' | 'nothing' | 'flood';
  chainId?: string;
  hasIndex?: boolean;
  keepsResults?: boolean;
  /** The code with which it refuses every transaction. */
  refuses?: number;
  /** It takes transactions, and its answers to them are lost. */
  losesBroadcasts?: boolean;
  /** To whom grants let money be sent. */
  allowList?: string[];
  /** What vesting locks of the balances of addresses. */
  lockedUtia?: Record<string, bigint>;
  /** It accepts transactions and forwards none. */
  loses?: boolean;
}

/** A simulated chain as one CometBFT node shows it over JSON-RPC. */
export interface StandIn {
  url: string;
  faults: Faults;
  /** The methods that were called. */
  calls: string[];
  /** From now on it shows the chain as it is now, as a node that has lost its peers. */
  freeze(): Promise<void>;
  stop(): Promise<void>;
}

interface AccountState {
  number: bigint;
  sequence: bigint;
  balance: bigint;
}

interface View {
  height: bigint;
  at: Date;
  accounts: Map<string, AccountState>;
}

class Refusal extends Error {}

type Params = Record<string, string>;

/** Serves a simulated chain by so many nodes. */
export async function startStandIns(pool: Pool, node: SimulatedNode, count = 1): Promise<StandIn[]> {
  const sent = new Map<string, Buffer>();
  return Promise.all(Array.from({ length: count }, () => startOne(pool, node, sent)));
}

async function startOne(pool: Pool, node: SimulatedNode, sent: Map<string, Buffer>): Promise<StandIn> {
  let frozen: View | undefined;
  const faults: Faults = {};
  const calls: string[] = [];
  const served = new CometMethods(pool, node, sent, faults, async () => frozen ?? look(pool, node));
  const server = createServer((request, response) => {
    answer(request, response, served, faults, calls).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    faults,
    calls,
    freeze: async () => {
      frozen = await look(pool, node);
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  methods: CometMethods,
  faults: Faults,
  calls: string[],
): Promise<void> {
  const { id, method, params } = JSON.parse(await text(request)) as { id: number; method: string; params: Params };
  calls.push(method);
  if (faults.answer === 'nothing') return;
  if (faults.answer === 'unavailable') return void response.writeHead(503).end('upstream down');
  if (faults.answer === 'garbage') return void response.end('<html>Welcome</html>');
  if (faults.answer === 'flood') {
    const pump = () => {
      while (!response.destroyed && response.write('0'.repeat(65_536)));
    };
    response.on('drain', pump);
    return pump();
  }
  const body = await methods.call(method, params).then(
    (result) => ({ jsonrpc: '2.0', id, result }),
    (error: unknown) => {
      if (!(error instanceof Refusal)) throw error;
      return { jsonrpc: '2.0', id, error: { code: -32603, message: 'Internal error', data: error.message } };
    },
  );
  if (method === 'broadcast_tx_sync' && faults.losesBroadcasts) return void response.destroy();
  const asText = JSON.stringify(body, (_, value: unknown) => (typeof value === 'bigint' ? value.toString() : value));
  response.setHeader('content-type', 'application/json').end(asText);
}

async function look(pool: Pool, node: SimulatedNode): Promise<View> {
  const { height, at } = await node.height();
  const found = await rows<AccountState & { address: string }>(
    pool,
    sql`select address, number, sequence, balance from simulated_account`,
  );
  return { height, at, accounts: new Map(found.map(({ address, ...state }) => [address, state])) };
}

/** The methods of CometBFT 0.38 that finance calls, with their answers in its form. */
class CometMethods {
  constructor(
    private readonly pool: Pool,
    private readonly node: SimulatedNode,
    private readonly sent: Map<string, Buffer>,
    private readonly faults: Faults,
    private readonly view: () => Promise<View>,
  ) {}

  async call(method: string, params: Params): Promise<unknown> {
    switch (method) {
      case 'status':
        return this.status();
      case 'abci_query':
        return this.query(params);
      case 'broadcast_tx_sync':
        return this.broadcast(Buffer.from(params.tx!, 'base64'));
      case 'tx':
        return this.find(Buffer.from(params.hash!, 'base64').toString('hex').toUpperCase());
      case 'tx_search':
        return this.search(params);
      case 'block_results':
        return this.blockResults(BigInt(params.height!));
      case 'blockchain':
        return this.blocks(BigInt(params.minHeight!));
      default:
        throw new Refusal('Method not found');
    }
  }

  private async status(): Promise<unknown> {
    const { height, at } = await this.view();
    return {
      node_info: {
        network: this.faults.chainId ?? this.node.id,
        version: '0.38.17',
        other: { tx_index: this.faults.hasIndex === false ? 'off' : 'on', rpc_address: 'tcp://0.0.0.0:26657' },
      },
      sync_info: { latest_block_height: height, latest_block_time: at, catching_up: false },
      validator_info: { voting_power: '0' },
    };
  }

  private async grant({ granter, grantee }: QueryGrantsRequest): Promise<Grant | undefined> {
    const found = await row<{ limit: bigint; until: Date }>(
      this.pool,
      sql`select spend_limit as limit, expires_at as until from simulated_grant where granter = ${granter} and grantee = ${grantee}`,
    );
    if (!found) return undefined;
    const { allowList = [] } = this.faults;
    const spendLimit = [{ denom: 'utia', amount: found.limit.toString() }];
    const value = SendAuthorization.encode(SendAuthorization.fromPartial({ spendLimit, allowList })).finish();
    const expiration = { seconds: BigInt(Math.floor(found.until.getTime() / 1_000)), nanos: 0 };
    return Grant.fromPartial({ authorization: { typeUrl: SendAuthorization.typeUrl, value }, expiration });
  }

  private async query({ path, data }: Params): Promise<unknown> {
    const { height, accounts } = await this.view();
    const request = Buffer.from(data!, 'hex');
    const answered = (value: Uint8Array) => ({
      response: { code: 0, value: Buffer.from(value).toString('base64'), height, codespace: '' },
    });
    if (path === '/cosmos.auth.v1beta1.Query/Account') {
      const { address } = QueryAccountRequest.decode(request);
      const found = accounts.get(address);
      if (!found) {
        const log = `rpc error: code = NotFound desc = account ${address} not found: key not found`;
        return { response: { code: 22, log, value: null, height, codespace: 'sdk' } };
      }
      const base = BaseAccount.fromPartial({ address, accountNumber: found.number, sequence: found.sequence });
      const account = { typeUrl: BaseAccount.typeUrl, value: BaseAccount.encode(base).finish() };
      return answered(QueryAccountResponse.encode({ account }).finish());
    }
    if (path === '/cosmos.authz.v1beta1.Query/Grants') {
      const asked = QueryGrantsRequest.decode(request);
      const grant = await this.grant(asked);
      if (grant || asked.msgTypeUrl === '') {
        return answered(QueryGrantsResponse.encode({ grants: grant ? [grant] : [] }).finish());
      }
      // As the SDK from 0.46 on, to whose gRPC errors this one does not belong.
      const log = `authorization not found for ${asked.msgTypeUrl} type: authorization not found: unknown request`;
      return { response: { code: 6, log, value: null, height: 0n, codespace: 'sdk' } };
    }
    const balanceOf = (address: string, denom: string, locked = 0n) => {
      const balance = denom === 'utia' ? (accounts.get(address)?.balance ?? 0n) : 0n;
      return { denom, amount: (balance > locked ? balance - locked : 0n).toString() };
    };
    if (path === '/cosmos.bank.v1beta1.Query/SpendableBalanceByDenom') {
      const { address, denom } = QuerySpendableBalanceByDenomRequest.decode(request);
      const balance = balanceOf(address, denom, this.faults.lockedUtia?.[address]);
      return answered(QuerySpendableBalanceByDenomResponse.encode({ balance }).finish());
    }
    const { address, denom } = QueryBalanceRequest.decode(request);
    return answered(QueryBalanceResponse.encode({ balance: balanceOf(address, denom) }).finish());
  }

  /** A broadcast whose answer the simulated chain loses throws, which ends the connection. */
  private async broadcast(bytes: Buffer): Promise<unknown> {
    const { refuses, loses } = this.faults;
    if (refuses !== undefined) return { code: refuses, data: '', log: 'refused', codespace: 'sdk', hash: '' };
    const hash = createHash('sha256').update(bytes).digest('hex').toUpperCase();
    if (loses) return { code: 0, data: '', log: '', codespace: '', hash };
    const result = await this.node.broadcast(bytes);
    if (result.state === 'known') throw new Refusal('tx already exists in cache');
    if (result.state === 'later') throw new Refusal('mempool is full: number of txs 5000 (max: 5000)');
    if (result.state === 'refused') return { ...result, data: '', log: 'refused' };
    this.sent.set(hash, bytes);
    return { code: 0, data: '', log: '', codespace: '', hash };
  }

  private async find(hash: string): Promise<unknown> {
    if (this.faults.hasIndex === false) throw new Refusal('transaction indexing is disabled');
    const found = await this.node.find(hash);
    if (found.state === 'absent' || found.height > (await this.view()).height) {
      throw new Refusal(`tx (${hash}) not found`);
    }
    return this.found((await this.transactions(found.height)).find((each) => each.hash === hash)!);
  }

  private async search({ query, page, per_page: perPage }: Params): Promise<unknown> {
    const [, height, recipient] = /^tx\.height=(\d+) AND transfer\.recipient='(\w+)'$/.exec(query!) ?? [];
    const all = (await this.transactions(BigInt(height!))).filter(
      ({ code, transfers }) => code === 0 && transfers.some((each) => each.recipient === recipient),
    );
    const indexed = await Promise.all(all.map(async ({ hash }) => (await this.node.find(hash)).state === 'included'));
    const found = all.filter((_, at) => indexed[at]);
    const from = (Number(page) - 1) * Number(perPage);
    return {
      txs: found.slice(from, from + Number(perPage)).map((each) => this.found(each)),
      total_count: String(found.length),
    };
  }

  private async blockResults(height: bigint): Promise<unknown> {
    const { height: latest } = await this.view();
    if (this.faults.keepsResults === false) throw new Refusal('node is not persisting abci responses');
    if (height > latest) {
      throw new Refusal(`height ${height} must be less than or equal to the current blockchain height ${latest}`);
    }
    const results = (await this.transactions(height)).map((each) => blockEvents(each));
    return { height, txs_results: results.length === 0 ? null : results, finalize_block_events: [] };
  }

  private async blocks(height: bigint): Promise<unknown> {
    const [found] = await this.transactions(height);
    const time = found?.transfers[0]?.at ?? new Date();
    return { last_height: height, block_metas: [{ header: { height, time }, num_txs: '1' }] };
  }

  private found(transaction: BlockTransaction): unknown {
    const { hash, height, index, bytes } = transaction;
    return { hash, height, index, tx_result: blockEvents(transaction), tx: bytes?.toString('base64') ?? '' };
  }

  private async transactions(height: bigint): Promise<BlockTransaction[]> {
    const found = await rows<{ hash: string; code: number }>(
      this.pool,
      sql`select hash, code from simulated_transaction where height = ${height} order by hash`,
    );
    const transfers = await rows<BlockTransaction['transfers'][number] & { hash: string }>(
      this.pool,
      sql`select hash, sender, recipient, amount, at from simulated_transfer where height = ${height} order by number`,
    );
    return found.map(({ hash, code }, index) => ({
      hash,
      code,
      index,
      height,
      bytes: this.sent.get(hash),
      transfers: transfers.filter((each) => each.hash === hash),
    }));
  }
}
