import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { JsonRpc } from '@granary/shared/http/json-rpc';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { Anvil, anvilNetwork, NodeProxy, usdc } from '@granary/testing/anvil';
import { limitMs } from '@granary/testing/speed';
import { newPayer, version2, type Requirement } from '@granary/testing/x402-client';
import { assetKeyOf, parseEvmAssets } from '../../src/schemes/evm/assets';
import { EvmNetwork } from '../../src/schemes/evm/network';
import { EvmNode } from '../../src/schemes/evm/node';
import type { EvmBlock } from '../../src/schemes/evm/node';
import { NodePool } from '../../src/networks/node-pool';
import { openGasKey, type GasKey } from '../../src/schemes/evm/gas-key';
import { Transactions } from '../../src/schemes/evm/transactions';
import type { SettlementNetwork } from '../../src/networks/settlement-network';
import { requirementText, validSeconds } from '../../src/quotes/offer';
import { offersFor, type OfferSettings } from '../../src/quotes/offers';
import { setRates, storedRates } from '../../src/quotes/rates';
import { Claims } from '../../src/settlement/claims';
import { RequestPayments } from '../../src/settlement/payments';
import { Settler } from '../../src/settlement/settler';
import { Verifier } from '../../src/verify/verifier';
import { openPaymentsPool } from './payments-pool';
import { fixedQuoteKeys } from './quote-keys';
import { EvmExact } from '../../src/schemes/evm/verify';
import { evmMethods } from '../../src/schemes/evm/methods';

export const log = createLogger('evm-test', 'silent');
export const amount = 250_000n;
const asset = parseEvmAssets('usdc-test').find(({ network }) => network === anvilNetwork)!;
const now = () => new Date();
export const verifier = new Verifier([new EvmExact([asset])], now);

/** A chain, a database, and an account that pays gas on the chain. */
export interface Place {
  anvil: Anvil;
  /** Before the node of the chain. */
  proxy: NodeProxy;
  pool: Pool;
  key: GasKey;
  payTo: string;
  stop(): Promise<void>;
}

export async function openPlace(): Promise<Place> {
  const anvil = await Anvil.start();
  const proxy = await NodeProxy.start(anvil.url);
  const pool = await openPaymentsPool(10);
  await setRates(pool, new Map([[assetKeyOf(asset), 1_000_000n]]));
  const path = join(await mkdtemp(join(tmpdir(), 'granary-gas-')), 'seed');
  await makeSeedFile(path);
  const key = await openGasKey(path);
  await anvil.setBalance(key.address, 10n ** 18n);
  const stop = async () => {
    await proxy.stop();
    await anvil.stop();
    await pool.end();
  };
  return { anvil, proxy, pool, key, payTo: (await newPayer()).address, stop };
}

export interface NetworkSettings {
  depthBlocks?: bigint;
  replaceAfterMs?: number;
  /** In wei. */
  maxFeePerGas?: bigint;
  /** The URL of a second node. */
  secondUrl?: string;
}

const gwei = 1_000_000_000n;

/** Opens a network that takes payments at once. */
export async function openNetwork(place: Place, settings?: NetworkSettings): Promise<EvmNetwork> {
  const network = newNetwork(place, settings);
  await network.watch();
  return network;
}

/** Makes a network that takes payments only after `watch` was called. */
export function newNetwork(
  { pool, proxy, key }: Place,
  { depthBlocks = 0n, replaceAfterMs = 60_000, maxFeePerGas = 20n * gwei, secondUrl }: NetworkSettings = {},
): EvmNetwork {
  const urls = secondUrl === undefined ? [proxy.url] : [proxy.url, secondUrl];
  const nodes = urls.map(
    (url, at) => new EvmNode(new JsonRpc({ url, timeoutMs: limitMs(5_000), name: `node ${at + 1}` })),
  );
  return new EvmNetwork({
    id: anvilNetwork,
    nodes: poolOf(nodes),
    key,
    depthBlocks,
    replaceAfterMs,
    log,
    maxFeePerGas,
    transactions: new Transactions(pool, anvilNetwork, key.address),
  });
}

/** A process of the service. */
export interface Copy {
  payments: RequestPayments;
  settler: Settler;
  claims: Claims;
  offers: OfferSettings;
}

export interface CopyOptions {
  claims?: Claims;
  waitMs?: number;
  clock?: () => Date;
}

export function newCopy({ pool, payTo }: Place, network: SettlementNetwork, options: CopyOptions = {}): Copy {
  const methods = () => evmMethods([{ network: anvilNetwork, address: payTo }], [asset]);
  return copyOf({ pool, network, methods, verifier }, options);
}

/** A process that takes payments by the methods on the network. */
export function copyOf(
  { pool, network, methods, verifier: by }: CopyParts,
  { claims = new Claims(pool, randomUUID()), waitMs = limitMs(60_000), clock = now }: CopyOptions,
): Copy {
  const networks = new Map([[network.id, network]]);
  const rates = storedRates(pool, validSeconds);
  const offers: OfferSettings = { keys: quoteKeys, rates, networks, methods, APP_SHARE_PERCENT: 80, now };
  const settler = new Settler({ claims, networks, log, now: clock });
  const payments = new RequestPayments({
    presented: { offers, verifier: by },
    claims,
    settler,
    X402_SETTLE_WAIT_MS: waitMs,
    now,
  });
  return { payments, settler, claims, offers };
}

interface CopyParts {
  pool: Pool;
  network: SettlementNetwork;
  methods: OfferSettings['methods'];
  verifier: Verifier;
}

const quoteKeys = fixedQuoteKeys();

const poolOf = (nodes: EvmNode[]) =>
  new NodePool<EvmBlock, EvmNode>(nodes, { network: anvilNetwork, lagMaxBlocks: 10n });

export type Payment = Awaited<ReturnType<typeof newPayment>>;

/** A payment of a new account, which has the amount once. */
export async function newPayment(
  { anvil }: Place,
  { offers }: Copy,
  changes: object = {},
  units = amount,
  { isUpfront = false } = {},
) {
  const payer = await newPayer();
  await anvil.mint(payer.address, units);
  const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia: amount.toString(), isUpfront };
  const [offer] = await offersFor(offers, purchase);
  const requirement = JSON.parse(requirementText(2, offer!)) as Requirement;
  const payment = await version2(payer, requirement, { changes });
  const request = { purchase, identifier: '', paymentJson: Buffer.from(JSON.stringify(payment)) };
  return { payer, requirement, request, payment, payload: payment.payload };
}

/** Another payment of the same payer, who gets no more money. */
export async function anotherPayment(place: Place, copy: Copy, { payer }: Payment): Promise<Payment> {
  const next = await newPayment(place, copy, {}, 0n);
  const payment = await version2(payer, next.requirement);
  const request = { ...next.request, paymentJson: Buffer.from(JSON.stringify(payment)) };
  return { ...next, payer, payment, payload: payment.payload, request };
}

export const stateOf = async (pool: Pool, { payload }: Payment): Promise<string | undefined> =>
  (
    await row<{ state: string }>(
      pool,
      sql`select state from claim where key like ${`%${payload.authorization.nonce.toLowerCase()}`}`,
    )
  )?.state;

/**
 * Why the first claim of the payment is refused, undefined while it is not. Presented again it would be a claim of its
 * own.
 */
export const refusalOf = async (pool: Pool, { payload }: Payment): Promise<string | undefined> =>
  (
    await row<{ refused_because: string }>(
      pool,
      sql`select refused_because from claim
          where state = 'refused' and key like ${`%${payload.authorization.nonce.toLowerCase()}|%`}`,
    )
  )?.refused_because;

/** The nonces of the account, each of which has a stored transaction. */
export const noncesIn = async (pool: Pool): Promise<number[]> =>
  (await rows<{ nonce: bigint }>(pool, sql`select nonce from evm_transaction order by nonce`)).map(({ nonce }) =>
    Number(nonce),
  );

export const counted = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

/** How often somebody used an authorization of the token. */
export async function usesOf(anvil: Anvil, nonce: string): Promise<number> {
  const topics = ['0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5', null, nonce];
  const logs = await anvil.call<unknown[]>('eth_getLogs', { address: usdc, fromBlock: '0x0', topics });
  return logs.length;
}

export interface Authorized {
  authorization: Record<'from' | 'to' | 'value' | 'validAfter' | 'validBefore' | 'nonce', string>;
  signature: string;
}

/** The data of a call of the token by what a payer has signed. */
export async function tokenCall(
  name: 'transferWithAuthorization' | 'receiveWithAuthorization',
  { authorization, signature }: Authorized,
): Promise<`0x${string}`> {
  const { encodeFunctionData, parseAbi, parseSignature } = await import('viem');
  const abi = parseAbi([
    'function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)',
    'function receiveWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)',
  ]);
  const { r, s, v } = parseSignature(signature as `0x${string}`);
  const { from, to, value, validAfter, validBefore, nonce } = authorization as Record<string, `0x${string}`>;
  const times = [BigInt(value!), BigInt(validAfter!), BigInt(validBefore!)] as const;
  return encodeFunctionData({ abi, functionName: name, args: [from!, to!, ...times, nonce!, Number(v), r, s] });
}

/** The data of a call of the token by which a payer cancels what he has signed. */
export async function cancelCall({ payer, payload }: Payment): Promise<`0x${string}`> {
  const { encodeFunctionData, parseAbi, parseSignature } = await import('viem');
  const message = { authorizer: payer.address, nonce: payload.authorization.nonce as `0x${string}` };
  const signature = await payer.signTypedData({
    domain: { name: 'USDC', version: '2', chainId: 84_532, verifyingContract: usdc },
    types: {
      CancelAuthorization: [
        { name: 'authorizer', type: 'address' },
        { name: 'nonce', type: 'bytes32' },
      ],
    },
    primaryType: 'CancelAuthorization',
    message,
  });
  const { r, s, v } = parseSignature(signature);
  return encodeFunctionData({
    abi: parseAbi(['function cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)']),
    functionName: 'cancelAuthorization',
    args: [message.authorizer, message.nonce, Number(v), r, s],
  });
}
