import { createHash } from 'node:crypto';
import { MsgExec } from 'cosmjs-types/cosmos/authz/v1beta1/tx';
import { MsgMultiSend, MsgSend } from 'cosmjs-types/cosmos/bank/v1beta1/tx';
import type { Coin } from 'cosmjs-types/cosmos/base/v1beta1/coin';
import { PubKey } from 'cosmjs-types/cosmos/crypto/secp256k1/keys';
import { AuthInfo, TxBody, TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import type { Any } from 'cosmjs-types/google/protobuf/any';
import { isSignatureOf } from '../secp256k1';
import { addressOf, addressProblem } from './address';
import { encodeSignDoc, encodeTransfer, type Output, type Transfer } from './transaction';

/** Codes of the Cosmos SDK's codespace `sdk`. */
export const sdkCodes = {
  undecodable: 2,
  unauthorized: 4,
  insufficientFunds: 5,
  invalidAddress: 7,
  outOfGas: 11,
  memoTooLarge: 12,
  insufficientFee: 13,
  unsupported: 18,
  timeoutHeight: 30,
  wrongSequence: 32,
} as const;

/** The codespace of `sdkCodes`: other modules use the same numbers for other reasons. */
export const sdkCodespace = 'sdk';

/** The transaction is invalid by itself, whatever the state of the chain. */
export class TransactionRefused extends Error {
  override readonly name = 'TransactionRefused';

  constructor(
    readonly code: (typeof sdkCodes)[keyof typeof sdkCodes],
    message: string,
  ) {
    super(message);
  }
}

export interface ReadRules {
  /** The prefix of all addresses, e.g. `celestia`. */
  prefix: string;
  chainId: string;
  memoBytesMax: number;
  /** Whether granters may pay (MsgExec). */
  mayExec?: boolean;
}

/** A transfer whose signature has not been checked: that takes the account number of its sender. */
export interface UnverifiedTransfer {
  /** Its account number is 0. */
  transfer: Transfer;
  publicKey: Uint8Array;
  raw: TxRaw;
}

/**
 * The transfer that the bytes of a signed transaction stand for; `verifySignature` must follow. Throws a
 * TransactionRefused for all bytes but those that encodeSigned makes: so also for unknown fields, other messages,
 * signers who are not the sender, and a second encoding of the same transaction.
 */
export function readTransaction(bytes: Uint8Array, rules: ReadRules): UnverifiedTransfer {
  const { transfer, publicKey, raw } = decode(bytes, rules.chainId);
  const granters = transfer.outputs.flatMap(({ granter }) => granter ?? []);
  if (granters.length > 0 && rules.mayExec !== true) {
    throw new TransactionRefused(sdkCodes.unsupported, 'Only MsgSend and MsgMultiSend are expected');
  }
  for (const address of [transfer.sender, ...granters, ...transfer.outputs.map((output) => output.address)]) {
    const problem = addressProblem(address, rules.prefix);
    if (problem !== undefined) throw new TransactionRefused(sdkCodes.invalidAddress, `An address ${problem}`);
  }
  if (addressOf(publicKey, rules.prefix) !== transfer.sender) {
    throw new TransactionRefused(sdkCodes.unauthorized, 'The sender is not the address of the public key');
  }
  if (Buffer.byteLength(transfer.memo) > rules.memoBytesMax) {
    throw new TransactionRefused(
      sdkCodes.memoTooLarge,
      `The memo is longer than ${rules.memoBytesMax.toString()} bytes`,
    );
  }
  const canonical = encode(transfer, publicKey);
  const encoded = TxRaw.encode({ ...raw, bodyBytes: canonical.body, authInfoBytes: canonical.authInfo }).finish();
  if (!Buffer.from(encoded).equals(bytes)) {
    throw new TransactionRefused(
      sdkCodes.undecodable,
      'The bytes hold more than a transfer, or are not in canonical form',
    );
  }
  return { transfer, publicKey, raw };
}

/** The transfer, once its signature is found valid for the chain and the account. Throws a TransactionRefused. */
export function verifySignature({ transfer, publicKey, raw }: UnverifiedTransfer, accountNumber: bigint): Transfer {
  const { bodyBytes: body, authInfoBytes: authInfo, signatures } = raw;
  const signDoc = encodeSignDoc({ body, authInfo }, transfer.chainId, accountNumber);
  const digest = createHash('sha256').update(signDoc).digest();
  if (signatures.length !== 1 || !isSignatureOf(publicKey, digest, signatures[0]!)) {
    throw new TransactionRefused(
      sdkCodes.unauthorized,
      'The signature is not valid: check chain id and account number',
    );
  }
  return { ...transfer, accountNumber };
}

function decode(bytes: Uint8Array, chainId: string): UnverifiedTransfer {
  const { raw, body, authInfo } = attempt(() => {
    const tx = TxRaw.decode(bytes);
    return { raw: tx, body: TxBody.decode(tx.bodyBytes), authInfo: AuthInfo.decode(tx.authInfoBytes) };
  });
  const [signer, ...otherSigners] = authInfo.signerInfos;
  const [message, ...otherMessages] = body.messages;
  if (!message || otherMessages.length > 0 || !signer?.publicKey || otherSigners.length > 0 || !authInfo.fee) {
    throw new TransactionRefused(
      sdkCodes.unsupported,
      'One message, one signer with a public key and a fee are expected',
    );
  }
  const { value } = signer.publicKey;
  const publicKey = attempt(() => PubKey.decode(value).key);
  const { amount, gasLimit } = authInfo.fee;
  const fee = { amount: amount.length === 0 ? 0n : amountOf(amount), gas: gasLimit };
  const { memo, timeoutHeight } = body;
  const { sequence } = signer;
  const transfer = { ...moneyOf(message), chainId, accountNumber: 0n, sequence, memo, fee, timeoutHeight };
  return { transfer, publicKey, raw };
}

function moneyOf({ typeUrl, value }: Any): Pick<Transfer, 'sender' | 'outputs' | 'denom'> {
  if (typeUrl === MsgSend.typeUrl) {
    const { fromAddress, toAddress, amount } = attempt(() => MsgSend.decode(value));
    const output = { address: toAddress, amount: amountOf(amount) };
    return { sender: fromAddress, outputs: [output], denom: amount[0]!.denom };
  }
  if (typeUrl === MsgMultiSend.typeUrl) {
    const { inputs, outputs } = attempt(() => MsgMultiSend.decode(value));
    const [first, ...others] = outputs.map(({ address, coins }): Output => ({ address, amount: amountOf(coins) }));
    if (!inputs[0] || !first) throw new TransactionRefused(sdkCodes.unsupported, 'An input and an output are expected');
    return { sender: inputs[0].address, outputs: [first, ...others], denom: outputs[0]!.coins[0]!.denom };
  }
  if (typeUrl === MsgExec.typeUrl) return grantedMoneyOf(attempt(() => MsgExec.decode(value)));
  throw new TransactionRefused(sdkCodes.unsupported, 'Only transfers are expected');
}

function grantedMoneyOf({ grantee, msgs }: MsgExec): Pick<Transfer, 'sender' | 'outputs' | 'denom'> {
  const sends = msgs.map(({ typeUrl, value }) => {
    if (typeUrl !== MsgSend.typeUrl) throw new TransactionRefused(sdkCodes.unsupported, 'Only MsgSend is granted');
    return attempt(() => MsgSend.decode(value));
  });
  const [first, ...others] = sends.map(({ fromAddress: granter, toAddress: address, amount }): Output => ({
    address,
    amount: amountOf(amount),
    granter,
  }));
  if (!first) throw new TransactionRefused(sdkCodes.unsupported, 'A transfer is expected');
  return { sender: grantee, outputs: [first, ...others], denom: sends[0]!.amount[0]!.denom };
}

function amountOf([coin, ...others]: Coin[]): bigint {
  if (!coin || others.length > 0 || !/^[0-9]{1,20}$/.test(coin.amount)) {
    throw new TransactionRefused(sdkCodes.unsupported, 'One coin with a whole amount is expected');
  }
  return BigInt(coin.amount);
}

function encode(transfer: Transfer, publicKey: Uint8Array) {
  try {
    return encodeTransfer(transfer, publicKey, { mayLackTimeout: true });
  } catch (error) {
    if (error instanceof RangeError) throw new TransactionRefused(sdkCodes.unsupported, error.message);
    throw error;
  }
}

/** A decoder of protobuf throws for bytes that it cannot read. */
function attempt<T>(decoder: () => T): T {
  try {
    return decoder();
  } catch {
    throw new TransactionRefused(sdkCodes.undecodable, 'The bytes are not a transaction');
  }
}
