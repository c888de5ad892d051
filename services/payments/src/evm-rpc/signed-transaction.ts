import { keccak_256 } from '@noble/hashes/sha3';
import { Transaction } from 'micro-eth-signer';
import type { SettlementTransaction } from '../networks/settlement-network';
import type { Fees } from './evm-node';
import type { GasKey } from './gas-key';

/** A call to a contract, as a transaction of EIP-1559. */
export interface TransactionContent extends Fees {
  chainId: bigint;
  nonce: bigint;
  gasLimit: bigint;
  to: string;
  data: string;
}

export function signTransaction(key: GasKey, content: TransactionContent): SettlementTransaction {
  const unsigned = Transaction.prepare({ ...content, type: 'eip1559', value: 0n });
  const signature = key.sign(keccak_256(unsigned.toRawBytes(false)));
  const signed = new Transaction('eip1559', { ...unsigned.raw, ...signature });
  return { bytes: Buffer.from(signed.toRawBytes(true)), hash: `0x${signed.hash}` };
}

/** Nodes replace a transaction by another one of the same nonce if both fees are a tenth higher; some ask for an eighth. */
const raised = (fee: bigint): bigint => (fee * 9n) / 8n + 1n;
/** What is not included although it pays so many times what is usual is not included because of its fees. */
const feesMax = 4n;

const higher = (one: bigint, other: bigint): bigint => (one > other ? one : other);

/** The same call with the same nonce and higher fees; undefined where they are so high already that more would not help. */
export function replaceTransaction(key: GasKey, bytes: Buffer, usual: Fees): SettlementTransaction | undefined {
  const { type, raw } = Transaction.fromRawBytes(bytes);
  if (type !== 'eip1559') throw new Error(`a transaction of this service is of the type ${type}`);
  const { maxFeePerGas, maxPriorityFeePerGas, chainId, nonce, gasLimit, to, data } = raw as TransactionContent;
  if (maxFeePerGas > usual.maxFeePerGas * feesMax) return undefined;
  return signTransaction(key, {
    ...{ chainId, nonce, gasLimit, to, data },
    maxFeePerGas: higher(raised(maxFeePerGas), usual.maxFeePerGas),
    maxPriorityFeePerGas: higher(raised(maxPriorityFeePerGas), usual.maxPriorityFeePerGas),
  });
}
