import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { base58 } from '@scure/base';
import { createKeyPairSignerFromPrivateKeyBytes, type KeyPairSigner } from '@solana/kit';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import { ExactSvmSchemeV1 } from '@x402/svm/exact/v1/client';

/** USDC on the test network, which is real, and what a payment in it must meet. */
export const solanaTest = {
  network: 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1',
  name: 'solana-devnet',
  mint: '4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU',
  decimals: 6,
};
export const tokenProgramAddress = 'TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA';

/** The data of the account of a mint: without authorities, initialized. */
export function mintData(decimals = solanaTest.decimals): Buffer {
  const data = Buffer.alloc(82);
  data.set([decimals, 1], 44);
  return data;
}

/** Starts a node that answers what the official client asks: what a mint is, and which block is the latest. */
export async function startSolanaNode(blockhash: () => string = () => base58.encode(Buffer.alloc(32, 7))) {
  const account = { data: [mintData().toString('base64'), 'base64'], owner: tokenProgramAddress, space: 82 };
  const values: Record<string, () => object> = {
    getAccountInfo: () => ({ ...account, executable: false, lamports: 1, rentEpoch: 0 }),
    getLatestBlockhash: () => ({ blockhash: blockhash(), lastValidBlockHeight: 150 }),
  };
  const server: Server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { id, method } = JSON.parse(Buffer.concat(chunks).toString()) as { id: string; method: string };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result: { context: { slot: 1 }, value: values[method]!() } }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** The signer of a seed: the same seed gives the same key. */
export const solanaSigner = (seed: number): Promise<KeyPairSigner> =>
  createKeyPairSignerFromPrivateKeyBytes(Buffer.alloc(32, seed));

export interface SolanaTerms {
  payTo: string;
  amount?: string;
  extra: Record<string, unknown>;
}

/** The requirements that a payment must meet, as a version of x402 writes them. */
export function solanaRequirement(version: 1 | 2, { payTo, amount = '10000', extra }: SolanaTerms) {
  const { network, name, mint } = solanaTest;
  return {
    scheme: 'exact',
    network: version === 1 ? name : network,
    asset: mint,
    payTo,
    maxTimeoutSeconds: 60,
    extra,
    ...(version === 1
      ? { maxAmountRequired: amount, resource: 'http://127.0.0.1/x', description: '', mimeType: 'application/json' }
      : { amount }),
  };
}

/**
 * Returns a request as facilitators verify it: requirements, with the payment that the official client makes for them.
 */
export async function paySolana(version: 1 | 2, payer: KeyPairSigner, rpcUrl: string, terms: SolanaTerms) {
  const requirement = solanaRequirement(version, terms);
  const scheme = version === 1 ? new ExactSvmSchemeV1(payer, { rpcUrl }) : new ExactSvmScheme(payer, { rpcUrl });
  const { payload } = await scheme.createPaymentPayload(version, requirement as never);
  return solanaEnvelope(version, requirement, payload['transaction'] as string);
}

export function solanaEnvelope(version: 1 | 2, requirement: object, transaction: string) {
  const { network } = requirement as { network: string };
  const chosen = version === 1 ? { scheme: 'exact', network } : { accepted: structuredClone(requirement) };
  return {
    x402Version: version,
    paymentPayload: { x402Version: version, ...chosen, payload: { transaction } },
    paymentRequirements: requirement,
  };
}
