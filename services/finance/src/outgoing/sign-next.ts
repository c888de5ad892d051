import type { Logger } from '@granary/shared/logger';
import type { Connection, Pool } from '@granary/shared/postgres/pool';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { Chain, ChainAccount } from '../chain/chain';
import { feeOf, gasLimit } from '../chain/fee';
import { signTransfer } from '../chain/sign-transfer';
import type { Output } from '@granary/shared/money/cosmos/transaction';
import type { KeyName, KeyProvider } from '../wallets/keys';
import { findOpen, insertSigned, lockSender, stopSender } from './outgoing-transaction';

export interface SigningOptions {
  pool: Pool;
  chain: Chain;
  keys: KeyProvider;
  log: Logger;
  denom: string;
  /** The price of a unit of gas, in the denomination. */
  gasPrice: number;
  /** A transaction can be included in so many blocks from its signature on. */
  timeoutBlocks: number;
}

/** The sender whose transactions are signed. */
export interface Signer {
  address: string;
  key: KeyName;
}

/** The outputs of the next transaction, and what else to store with it. */
export interface Draft {
  outputs: readonly Output[];
  /** Called in the transaction that stores the signed bytes. */
  stored(tx: Connection, number: bigint, hash: string): Promise<void>;
}

/** The fee of a transfer to so many recipients. */
export const transferFee = (recipients: number, gasPrice: number, isGranted = false): bigint =>
  feeOf(gasLimit(recipients, isGranted), gasPrice);

/**
 * Signs the next transaction of a sender and stores it; nothing is sent. `choose` says what for, with the row of the
 * sender locked, or that there is nothing. False when nothing was signed: another transaction is in flight, the sender
 * is stopped, or the node lags behind. Concurrent calls sign once.
 */
export async function signNext(
  options: SigningOptions,
  signer: Signer,
  choose: (tx: Connection, balance: bigint) => Promise<Draft | undefined>,
): Promise<boolean> {
  const { pool, chain, log } = options;
  const { address } = signer;
  if (await findOpen(pool, address)) return false;
  // The order matters: the balance must not be older than the sequence.
  const { height } = await chain.height();
  const account = await chain.account(address);
  const balance = await chain.balance(address);
  const sequence = account?.sequence ?? 0n;
  return retriedTransaction(pool, async (tx) => {
    const { nextSequence, stoppedBecause } = await lockSender(tx, address, sequence);
    // The node lags behind, or another process has sent a transaction since it was asked.
    if (stoppedBecause !== null || sequence < nextSequence || (await findOpen(tx, address))) return false;
    if (sequence > nextSequence) {
      log.error(
        { address, sequence: sequence.toString() },
        'somebody else signs with a key of ours, its sender is stopped',
      );
      await stopSender(tx, address, 'a transaction of ours is on the chain that was not sent from here');
      return false;
    }
    const draft = await choose(tx, balance);
    if (!draft || !account) return false;
    await sign(tx, options, signer, account, height, draft);
    return true;
  });
}

async function sign(
  tx: Connection,
  { chain, keys, denom, gasPrice, timeoutBlocks }: SigningOptions,
  { address: sender, key }: Signer,
  { number: accountNumber, sequence }: ChainAccount,
  height: bigint,
  draft: Draft,
): Promise<void> {
  const { outputs } = draft;
  const gas = gasLimit(outputs.length, outputs[0]?.granter !== undefined);
  const fee = { amount: feeOf(gas, gasPrice), gas };
  const timeoutHeight = height + BigInt(timeoutBlocks);
  const { bytes, hash } = await signTransfer(keys, key, {
    chainId: chain.id,
    accountNumber,
    sequence,
    sender,
    outputs: outputs as [Output, ...Output[]],
    denom,
    memo: '',
    fee,
    timeoutHeight,
  });
  const number = await insertSigned(tx, {
    sender,
    sequence,
    hash,
    bytes,
    timeoutHeight,
    signedHeight: height,
    fee: fee.amount,
  });
  await draft.stored(tx, number, hash);
}
