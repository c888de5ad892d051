import { QueryAccountRequest, QueryAccountResponse } from 'cosmjs-types/cosmos/auth/v1beta1/query';
import type { Grant as AuthzGrant } from 'cosmjs-types/cosmos/authz/v1beta1/authz';
import { QueryGrantsRequest, QueryGrantsResponse } from 'cosmjs-types/cosmos/authz/v1beta1/query';
import {
  QueryBalanceRequest,
  QueryBalanceResponse,
  QuerySpendableBalanceByDenomRequest,
  QuerySpendableBalanceByDenomResponse,
} from 'cosmjs-types/cosmos/bank/v1beta1/query';
import { z } from 'zod';
import type { BroadcastResult, ChainAccount } from '../chain/chain';
import { decodeAccount } from './decode-account';
import { JsonRpc, NodeFailure, RpcError } from '@granary/shared/http/json-rpc';

/** A light call: a node that takes longer is not asked anything else. */
const statusTimeoutMs = 3_000;
/** The limit for the results of a block. A full block has many events; its transactions are not included. */
const resultsMaxBytes = 32 * 1024 * 1024;
const searchPage = 50;
const searchMaxBytes = 8 * 1024 * 1024;
const pagesMax = 200;

const codes = { mempoolCache: 19, mempoolFull: 20, notFound: 22 };

const int64 = z
  .string()
  .regex(/^\d{1,19}$/)
  .transform(BigInt);
const time = z
  .string()
  .transform((text) => new Date(text))
  .refine((at) => !Number.isNaN(at.getTime()));
const base64 = z
  .string()
  .nullish()
  .transform((text) => Buffer.from(text ?? '', 'base64'));

const eventSchema = z.object({
  type: z.string(),
  attributes: z
    .array(z.object({ key: z.string().nullish(), value: z.string().nullish() }))
    .nullish()
    .transform((attributes) => attributes ?? []),
});
export type ChainEvent = z.infer<typeof eventSchema>;

const resultSchema = z.object({
  code: z.int().default(0),
  codespace: z.string().default(''),
  events: z
    .array(eventSchema)
    .nullish()
    .transform((events) => events ?? []),
});
export type TransactionResult = z.infer<typeof resultSchema>;

const foundSchema = z.object({
  hash: z
    .string()
    .regex(/^[0-9A-Fa-f]{64}$/)
    .transform((hash) => hash.toUpperCase()),
  height: int64,
  index: z.int().default(0),
  tx_result: resultSchema,
  tx: base64,
});
/** A transaction of a block, with its place in it. */
export type FoundTransaction = z.infer<typeof foundSchema>;

const statusSchema = z.object({
  node_info: z.object({
    network: z.string(),
    other: z.object({ tx_index: z.string().default('') }).optional(),
  }),
  sync_info: z.object({ latest_block_height: int64, latest_block_time: time, catching_up: z.boolean() }),
});

const querySchema = z.object({
  response: z.object({
    code: z.int().default(0),
    codespace: z.string().default(''),
    log: z.string().default(''),
    value: base64,
    height: int64.default(0n),
  }),
});

const broadcastSchema = z.object({ code: z.int().default(0), codespace: z.string().default('') });
const searchSchema = z.object({ txs: z.array(foundSchema).nullish(), total_count: int64 });
const blockResultsSchema = z.object({ txs_results: z.array(resultSchema).nullish() });
const blocksSchema = z.object({
  block_metas: z.array(z.object({ header: z.object({ height: int64, time }) })),
});

export interface NodeStatus {
  chainId: string;
  height: bigint;
  at: Date;
  isCatchingUp: boolean;
  /** Whether it finds transactions by their hash. */
  hasIndex: boolean;
}

/** The calls of a CometBFT node that finance needs, and of the Cosmos SDK behind it. All throw as JsonRpc does. */
export class CometNode {
  constructor(private readonly rpc: JsonRpc) {}

  get name(): string {
    return this.rpc.name;
  }

  async status(): Promise<NodeStatus> {
    const { node_info: node, sync_info: sync } = await this.rpc.call('status', {}, statusSchema, {
      timeoutMs: statusTimeoutMs,
    });
    return {
      chainId: node.network,
      height: sync.latest_block_height,
      at: sync.latest_block_time,
      isCatchingUp: sync.catching_up,
      hasIndex: node.other?.tx_index === 'on',
    };
  }

  async account(address: string): Promise<ChainAccount | undefined> {
    const request = QueryAccountRequest.encode({ address }).finish();
    const response = await this.query('/cosmos.auth.v1beta1.Query/Account', request);
    if (!response) return undefined;
    const account = decodeAccount(QueryAccountResponse.decode(response.value).account);
    return { number: account.accountNumber, sequence: account.sequence, height: response.height };
  }

  async balance(address: string, denom: string): Promise<bigint> {
    const request = QueryBalanceRequest.encode({ address, denom }).finish();
    const response = await this.query('/cosmos.bank.v1beta1.Query/Balance', request);
    const balance = response && QueryBalanceResponse.decode(response.value).balance;
    return balance ? BigInt(balance.amount) : 0n;
  }

  /** The balance without the part that vesting locks, which `balance` includes. Needs Cosmos SDK 0.47 or later. */
  async spendable(address: string, denom: string): Promise<bigint> {
    const request = QuerySpendableBalanceByDenomRequest.encode({ address, denom }).finish();
    const response = await this.query('/cosmos.bank.v1beta1.Query/SpendableBalanceByDenom', request);
    const balance = response && QuerySpendableBalanceByDenomResponse.decode(response.value).balance;
    return balance ? BigInt(balance.amount) : 0n;
  }

  /**
   * The grants of a granter to a grantee, for all kinds of message: nodes refuse a query for a single kind that was not
   * granted, with codes that differ between versions of the Cosmos SDK.
   */
  async grants(granter: string, grantee: string): Promise<AuthzGrant[]> {
    const request = QueryGrantsRequest.encode(QueryGrantsRequest.fromPartial({ granter, grantee })).finish();
    const response = await this.query('/cosmos.authz.v1beta1.Query/Grants', request);
    return response ? QueryGrantsResponse.decode(response.value).grants : [];
  }

  async broadcast(bytes: Uint8Array): Promise<BroadcastResult> {
    try {
      const tx = Buffer.from(bytes).toString('base64');
      const { code, codespace } = await this.rpc.call('broadcast_tx_sync', { tx }, broadcastSchema);
      if (code === 0) return { state: 'accepted' };
      if (codespace === 'sdk' && code === codes.mempoolCache) return { state: 'known' };
      if (codespace === 'sdk' && code === codes.mempoolFull) return { state: 'later' };
      return { state: 'refused', codespace, code };
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      if (/already exists in cache/i.test(error.data)) return { state: 'known' };
      if (/mempool is full/i.test(error.data)) return { state: 'later' };
      throw error;
    }
  }

  /** Finds a transaction by its hash; undefined when the index of the node does not have it. */
  async find(hash: string): Promise<FoundTransaction | undefined> {
    try {
      const params = { hash: Buffer.from(hash, 'hex').toString('base64') };
      const transaction = await this.rpc.call('tx', params, foundSchema, { maxBytes: searchMaxBytes });
      if (transaction.hash !== hash) throw new NodeFailure(`${this.name} answers with another transaction (tx)`);
      return transaction;
    } catch (error) {
      if (error instanceof RpcError && /^tx \([0-9a-f]{64}\) not found/i.test(error.data)) return undefined;
      throw error;
    }
  }

  /** The transactions that its index has for a query. */
  async search(query: string): Promise<FoundTransaction[]> {
    const transactions: FoundTransaction[] = [];
    for (let page = 1; page <= pagesMax; page++) {
      const params = { query, prove: false, page: String(page), per_page: String(searchPage), order_by: 'asc' };
      const limits = { maxBytes: searchMaxBytes };
      const { txs, total_count: total } = await this.rpc.call('tx_search', params, searchSchema, limits);
      transactions.push(...(txs ?? []));
      if (BigInt(transactions.length) >= total || !txs || txs.length === 0) return transactions;
    }
    throw new NodeFailure(`${this.name} has too many transactions for one query (tx_search)`);
  }

  /** The results of the transactions in a block, in order. They do not come from the index, which may lag behind. */
  async blockResults(height: bigint): Promise<TransactionResult[]> {
    const params = { height: height.toString() };
    const results = await this.rpc.call('block_results', params, blockResultsSchema, { maxBytes: resultsMaxBytes });
    return results.txs_results ?? [];
  }

  async blockTime(height: bigint): Promise<Date> {
    const params = { minHeight: height.toString(), maxHeight: height.toString() };
    const { block_metas: blocks } = await this.rpc.call('blockchain', params, blocksSchema);
    const block = blocks.find(({ header }) => header.height === height);
    if (!block) throw new NodeFailure(`${this.name} does not have block ${height} (blockchain)`);
    return block.header.time;
  }

  /** A query of the application, as of its latest state; undefined when it finds nothing. */
  private async query(path: string, request: Uint8Array): Promise<{ value: Uint8Array; height: bigint } | undefined> {
    const params = { path, data: Buffer.from(request).toString('hex'), height: '0', prove: false };
    const { response } = await this.rpc.call('abci_query', params, querySchema);
    const { code, codespace, log, value, height } = response;
    if (code === codes.notFound && codespace === 'sdk') return undefined;
    if (code !== 0) throw new RpcError(`${this.name} refuses ${path}`, `code ${code} of ${codespace}: ${log}`);
    if (height === 0n) throw new NodeFailure(`${this.name} answers without a height (abci_query)`);
    return { value, height };
  }
}
