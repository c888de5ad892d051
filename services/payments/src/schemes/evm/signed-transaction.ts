import { keccak_256 } from '@noble/hashes/sha3';
import { Transaction } from 'micro-eth-signer';
import type { SettlementTransaction } from '../../networks/settlement-network';
import type { Fees } from './node';
import type { GasKey } from './gas-key';

/** A call to a contract, as a transaction of EIP-1559. */
export interface TransactionContent extends Fees {
  chainId: bigint;
  nonce: bigint;
  gasLimit: bigint;
  to: string;
  data: string;
}

/**
 * The fees that a transaction offers for a unit of gas, limited to `max`. Undefined where even the latest block's base
 * fee and the usual priority fee exceed that. All amounts are in wei.
 *
 * @param baseFee The base fee of the latest block.
 */
export function feesWithin(usual: Fees, baseFee: bigint, max: bigint): Fees | undefined {
  if (baseFee + usual.maxPriorityFeePerGas > max) return undefined;
  return { ...usual, maxFeePerGas: lower(usual.maxFeePerGas, max) };
}

export function signTransaction(key: GasKey, content: TransactionContent): SettlementTransaction {
  const unsigned = Transaction.prepare({ ...content, type: 'eip1559', value: 0n });
  const signature = key.sign(keccak_256(unsigned.toRawBytes(false)));
  const signed = new Transaction('eip1559', { ...unsigned.raw, ...signature });
  return { bytes: Buffer.from(signed.toRawBytes(true)), hash: `0x${signed.hash}` };
}

/**
 * Nodes replace a transaction by another one of the same nonce if both fees are a tenth higher; some ask for an eighth.
 */
const raised = (fee: bigint): bigint => (fee * 9n) / 8n + 1n;
/** The multiple of the usual fees beyond which fees are not the reason why a transaction is not included. */
const feesMax = 4n;

const higher = (one: bigint, other: bigint): bigint => (one > other ? one : other);
const lower = (one: bigint, other: bigint): bigint => (one < other ? one : other);

/**
 * Signs the same call with the same nonce and higher fees. Returns undefined where higher fees would not help, because
 * they are high already, or would exceed `max`.
 */
export function replaceTransaction(
  key: GasKey,
  bytes: Buffer,
  usual: Fees,
  max: bigint,
): SettlementTransaction | undefined {
  const { type, raw } = Transaction.fromRawBytes(bytes);
  if (type !== 'eip1559') throw new Error(`a transaction of this service is of the type ${type}`);
  const { maxFeePerGas, maxPriorityFeePerGas, chainId, nonce, gasLimit, to, data } = raw as TransactionContent;
  const replacing = higher(raised(maxFeePerGas), usual.maxFeePerGas);
  if (maxFeePerGas > usual.maxFeePerGas * feesMax || replacing > max) return undefined;
  return signTransaction(key, {
    chainId,
    nonce,
    gasLimit,
    to,
    data,
    maxFeePerGas: replacing,
    maxPriorityFeePerGas: lower(higher(raised(maxPriorityFeePerGas), usual.maxPriorityFeePerGas), replacing),
  });
}
