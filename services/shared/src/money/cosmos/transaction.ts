import { MsgMultiSend, MsgSend } from 'cosmjs-types/cosmos/bank/v1beta1/tx';
import { MsgExec } from 'cosmjs-types/cosmos/authz/v1beta1/tx';
import { PubKey } from 'cosmjs-types/cosmos/crypto/secp256k1/keys';
import { SignMode } from 'cosmjs-types/cosmos/tx/signing/v1beta1/signing';
import { AuthInfo, Fee, SignDoc, TxBody, TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import type { Any } from 'cosmjs-types/google/protobuf/any';

const uint64Max = 2n ** 64n - 1n;

/** One recipient of a transaction; the amount is in the transaction's denomination. */
export interface Output {
  address: string;
  amount: bigint;
  /** The account that pays, by a grant to the sender; the sender himself where it is absent. */
  granter?: string;
}

/** A transaction that moves money, with a single signer who pays the fee. */
export interface Transfer {
  chainId: string;
  accountNumber: bigint;
  sequence: bigint;
  sender: string;
  /**
   * One is encoded as MsgSend, several as one MsgMultiSend, and what granters pay as one MsgExec of a MsgSend for each:
   * they succeed or fail as a whole. All have a granter, or none.
   */
  outputs: readonly [Output, ...Output[]];
  /** E.g. `utia`; of the amounts and the fee. */
  denom: string;
  memo: string;
  fee: { amount: bigint; gas: bigint };
  /** The last block that may include the transaction; 0: any may. */
  timeoutHeight: bigint;
}

/** The parts of a transaction as the signature covers them. */
export interface UnsignedBytes {
  body: Uint8Array;
  authInfo: Uint8Array;
  /** The SignDoc, whose SHA-256 is signed. */
  signDoc: Uint8Array;
}

/**
 * Encodes a transaction for SIGN_MODE_DIRECT. Throws a RangeError for an amount that is not positive, for a number
 * above 64 bits, and without a timeout height unless `mayLackTimeout`: a transaction of ours that never expires could
 * not be given up safely.
 */
export function encodeTransfer(
  transfer: Transfer,
  publicKey: Uint8Array,
  { mayLackTimeout = false } = {},
): UnsignedBytes {
  assertNumbers(transfer);
  if (transfer.timeoutHeight === 0n && !mayLackTimeout) {
    throw new RangeError('A transaction must have a timeout height');
  }
  const { chainId, accountNumber, denom, fee, memo, sequence, timeoutHeight } = transfer;
  const body = TxBody.encode(TxBody.fromPartial({ messages: [messageOf(transfer)], memo, timeoutHeight })).finish();
  const authInfo = AuthInfo.encode(
    AuthInfo.fromPartial({
      signerInfos: [
        {
          publicKey: { typeUrl: PubKey.typeUrl, value: PubKey.encode({ key: publicKey }).finish() },
          modeInfo: { single: { mode: SignMode.SIGN_MODE_DIRECT } },
          sequence,
        },
      ],
      fee: Fee.fromPartial({ amount: coins(fee.amount, denom), gasLimit: fee.gas }),
    }),
  ).finish();
  return { body, authInfo, signDoc: encodeSignDoc({ body, authInfo }, chainId, accountNumber) };
}

/** The bytes that the signature covers: the transaction, the chain, and the number of the sender's account. */
export function encodeSignDoc(
  { body, authInfo }: Omit<UnsignedBytes, 'signDoc'>,
  chainId: string,
  accountNumber: bigint,
): Uint8Array {
  return SignDoc.encode({ bodyBytes: body, authInfoBytes: authInfo, chainId, accountNumber }).finish();
}

/** The bytes that nodes take. */
export function encodeSigned({ body, authInfo }: UnsignedBytes, signature: Uint8Array): Uint8Array {
  return TxRaw.encode({ bodyBytes: body, authInfoBytes: authInfo, signatures: [signature] }).finish();
}

function messageOf({ sender, outputs, denom }: Transfer): Any {
  const [first, ...others] = outputs;
  if (first.granter !== undefined) {
    const msgs = outputs.map(({ granter, address, amount }) => sendOf(granter!, address, amount, denom));
    return { typeUrl: MsgExec.typeUrl, value: MsgExec.encode({ grantee: sender, msgs }).finish() };
  }
  if (others.length === 0) {
    return sendOf(sender, first.address, first.amount, denom);
  }
  const message = {
    inputs: [{ address: sender, coins: coins(totalOf(outputs), denom) }],
    outputs: outputs.map(({ address, amount }) => ({ address, coins: coins(amount, denom) })),
  };
  return { typeUrl: MsgMultiSend.typeUrl, value: MsgMultiSend.encode(message).finish() };
}

function sendOf(fromAddress: string, toAddress: string, amount: bigint, denom: string): Any {
  const message = { fromAddress, toAddress, amount: coins(amount, denom) };
  return { typeUrl: MsgSend.typeUrl, value: MsgSend.encode(message).finish() };
}

/** A list of coins holds no zero. */
function coins(amount: bigint, denom: string): Array<{ denom: string; amount: string }> {
  return amount === 0n ? [] : [{ denom, amount: amount.toString() }];
}

function totalOf(outputs: readonly Output[]): bigint {
  return outputs.reduce((sum, { amount }) => sum + amount, 0n);
}

function assertNumbers({ outputs, fee, accountNumber, sequence, timeoutHeight }: Transfer): void {
  if (new Set(outputs.map(({ granter }) => granter === undefined)).size > 1) {
    throw new RangeError('All outputs have a granter, or none');
  }
  if (outputs.some(({ amount }) => amount <= 0n)) throw new RangeError('The amount of each output must be positive');
  for (const value of [totalOf(outputs), fee.amount, fee.gas, accountNumber, sequence, timeoutHeight]) {
    if (value < 0n || value > uint64Max)
      throw new RangeError(`${value.toString()} is not an unsigned number of 64 bits`);
  }
}
