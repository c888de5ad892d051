import { createContract, events } from 'micro-eth-signer/abi';
import type { EvmProof } from './verify';

// The functions of EIP-3009 and ERC-20 that are used here.
const contract = createContract([
  {
    type: 'function',
    name: 'transferWithAuthorization',
    inputs: [
      { name: 'from', type: 'address' },
      { name: 'to', type: 'address' },
      { name: 'value', type: 'uint256' },
      { name: 'validAfter', type: 'uint256' },
      { name: 'validBefore', type: 'uint256' },
      { name: 'nonce', type: 'bytes32' },
      { name: 'v', type: 'uint8' },
      { name: 'r', type: 'bytes32' },
      { name: 's', type: 'bytes32' },
    ],
    outputs: [],
  },
  {
    type: 'function',
    name: 'authorizationState',
    inputs: [
      { name: 'authorizer', type: 'address' },
      { name: 'nonce', type: 'bytes32' },
    ],
    outputs: [{ name: '', type: 'bool' }],
  },
  {
    type: 'function',
    name: 'balanceOf',
    inputs: [{ name: 'account', type: 'address' }],
    outputs: [{ name: '', type: 'uint256' }],
  },
] as const);

const logged = events([
  {
    type: 'event',
    name: 'AuthorizationUsed',
    inputs: [
      { name: 'authorizer', type: 'address', indexed: true },
      { name: 'nonce', type: 'bytes32', indexed: true },
    ],
  },
  {
    type: 'event',
    name: 'AuthorizationCanceled',
    inputs: [
      { name: 'authorizer', type: 'address', indexed: true },
      { name: 'nonce', type: 'bytes32', indexed: true },
    ],
  },
  {
    type: 'event',
    name: 'Transfer',
    inputs: [
      { name: 'from', type: 'address', indexed: true },
      { name: 'to', type: 'address', indexed: true },
      { name: 'value', type: 'uint256', indexed: false },
    ],
  },
] as const);

type Authorized = Pick<EvmProof, 'from' | 'nonce'>;

const bytesOf = (hex: string): Buffer => Buffer.from(hex.slice(2), 'hex');
const hexOf = (bytes: Uint8Array): string => `0x${Buffer.from(bytes).toString('hex')}`;

/** The data of a call that transfers what a payment authorizes. */
export function transferCall({ from, to, value, validAfter, validBefore, nonce, signature }: EvmProof): string {
  const signed = bytesOf(signature);
  return hexOf(
    contract.transferWithAuthorization.encodeInput({
      from,
      to,
      value: BigInt(value),
      validAfter: BigInt(validAfter),
      validBefore: BigInt(validBefore),
      nonce: bytesOf(nonce),
      v: BigInt(signed[64]!),
      r: signed.subarray(0, 32),
      s: signed.subarray(32, 64),
    }),
  );
}

/** The data of a call that says whether an authorization was used or cancelled, and what its answer says. */
export const stateCall = ({ from, nonce }: Authorized): string =>
  hexOf(contract.authorizationState.encodeInput({ authorizer: from, nonce: bytesOf(nonce) }));
export const readState = (answer: string): boolean => contract.authorizationState.decodeOutput(bytesOf(answer));

/** The data of a call for the balance of an account, in units of the token, and its answer. */
export const balanceCall = (account: string): string => hexOf(contract.balanceOf.encodeInput(account));
export const readBalance = (answer: string): bigint => contract.balanceOf.decodeOutput(bytesOf(answer));

/** The topics of the logs of uses and cancellations: a log has one of the first, and the authorizer. */
export function authorizationTopics({ from, nonce }: Authorized): [events: string[], authorizer: string] {
  const values = { authorizer: from, nonce: bytesOf(nonce) };
  const [used, authorizer] = logged.AuthorizationUsed.topics(values);
  const [canceled] = logged.AuthorizationCanceled.topics(values);
  return [[used!, canceled!], authorizer!];
}

/** A log, as nodes give it. */
export interface EvmLog {
  address: string;
  topics: string[];
  data: string;
  index: bigint;
  transactionHash: string;
  blockHash: string;
}

/** Joins what a use of an authorization is known by, however it is spelled: the token, the payer and the nonce. */
export const useKeyOf = ({ asset, from, nonce }: Pick<EvmProof, 'asset' | 'from' | 'nonce'>): string =>
  `${asset}|${from}|${nonce}`.toLowerCase();

/** Joins the same from the log of a use or a cancellation. */
export const useKeyIn = ({ address, topics: [, authorizer, nonce] }: EvmLog): string =>
  `${address}|0x${authorizer!.slice(-40)}|${nonce!}`;

/** Whether the log says that the authorization was used; otherwise it was cancelled. */
export const isUse = ({ topics }: EvmLog, proof: EvmProof): boolean => topics[0] === authorizationTopics(proof)[0][0];

/** Whether the log is of the transfer that a payment authorizes. */
export function isTransfer({ topics, data }: EvmLog, { from, to, value }: EvmProof): boolean {
  const expected = logged.Transfer.topics({ from, to, value: null });
  return (
    topics.length === expected.length &&
    topics.every((topic, index) => topic === expected[index]) &&
    BigInt(data) === BigInt(value)
  );
}
