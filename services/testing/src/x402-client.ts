import { randomBytes } from 'node:crypto';
import type { PrivateKeyAccount } from 'viem' with { 'resolution-mode': 'import' };

/** A requirement of a 402, of version 1 or 2. */
export interface Requirement {
  scheme: string;
  network: string;
  asset: string;
  payTo: string;
  maxTimeoutSeconds: number;
  maxAmountRequired?: string;
  amount?: string;
  extra: Record<string, unknown> & { quoteId: string; name: string; version: string };
}

export const simulatedNetwork = 'eip155:1735549294';
export const simulatedName = 'granary-simulated';

/** The chain of a requirement, of version 2 or 1. */
function chainIdOf(network: string): number {
  const caip2 = network === simulatedName ? simulatedNetwork : network === 'base-sepolia' ? 'eip155:84532' : network;
  return Number(caip2.split(':')[1]);
}

/** The types of what is signed, see EIP-712 and EIP-3009. */
export const transferTypes = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
};

export async function newPayer(): Promise<PrivateKeyAccount> {
  return (await import('viem/accounts')).privateKeyToAccount(`0x${randomBytes(32).toString('hex')}`);
}

/** The authorization that a payer signs for a requirement, with changes that are signed too. */
export async function authorize(payer: PrivateKeyAccount, requirement: Requirement, changes: object = {}) {
  const nowSeconds = Math.floor(Date.now() / 1_000);
  const authorization = {
    from: payer.address,
    to: requirement.payTo,
    value: requirement.amount ?? requirement.maxAmountRequired!,
    validAfter: '0',
    validBefore: String(nowSeconds + requirement.maxTimeoutSeconds),
    nonce: `0x${randomBytes(32).toString('hex')}`,
    ...changes,
  };
  const { name, version } = requirement.extra;
  const signature = await payer.signTypedData({
    domain: {
      name,
      version,
      chainId: chainIdOf(requirement.network),
      verifyingContract: requirement.asset as `0x${string}`,
    },
    types: transferTypes,
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  });
  return { signature, authorization };
}

export const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64');
export const decoded = <T>(text: string | null): T => JSON.parse(Buffer.from(text!, 'base64').toString()) as T;

/** A payment of version 1; as the published client makes it, it names its quote. */
export async function version1(
  payer: PrivateKeyAccount,
  requirement: Requirement,
  { withQuote = true, changes = {} } = {},
) {
  return {
    x402Version: 1,
    scheme: 'exact',
    network: requirement.network,
    payload: await authorize(payer, requirement, changes),
    ...(withQuote && { quoteId: requirement.extra.quoteId }),
  };
}

export async function version2(
  payer: PrivateKeyAccount,
  requirement: Requirement,
  { changes = {}, extensions = undefined as object | undefined } = {},
) {
  const payload = await authorize(payer, requirement, changes);
  return { x402Version: 2, accepted: requirement, payload, ...(extensions && { extensions }) };
}
