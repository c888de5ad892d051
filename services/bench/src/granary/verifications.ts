import { randomBytes } from 'node:crypto';
import Module from 'node:module';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import type { FacilitatorEvmSigner } from '@x402/evm';
import type { FacilitatorSvmSigner } from '@x402/svm';
import { serve } from '../child';

/**
 * This process verifies x402 payments by our verifier, and by the official facilitators on chains that answer at once.
 */
const paymentsCount = 64;
const network = 'eip155:84532';
const asset = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
const payTo = '0x209693Bc6afc0C5328bA36FaF03C514EF312287C';
const cosmos = { network: 'cosmos:celestia', prefix: 'celestia', denom: 'utia', memoBytesMax: 256 };

export type SchemeName = 'official' | 'evm' | 'cosmos' | 'officialSolana' | 'solana';

/** A payment, as facilitators take it. */
interface Envelope {
  paymentPayload: object;
  paymentRequirements: object;
}

interface Scheme {
  payments: Envelope[];
  isValid: (payment: Envelope) => Promise<boolean>;
}

let schemes: Record<SchemeName, Scheme>;

/**
 * Prepares payments and verifiers. With `webAssembly` the curve has no native build, as on platforms that have none;
 * the modules that load the curve are therefore imported only after that is arranged.
 */
async function start({ webAssembly }: { webAssembly: boolean }): Promise<void> {
  if (webAssembly) refuseBindings();
  const { parseEvmAssets } = await import('@granary/payments/schemes/evm/assets');
  const { EvmExact } = await import('@granary/payments/schemes/evm/verify');
  const { CosmosExact } = await import('@granary/payments/schemes/cosmos/verify');
  const { parseSolanaAssets } = await import('@granary/payments/schemes/solana/assets');
  const { SolanaExact } = await import('@granary/payments/schemes/solana/verify');
  const { Verifier } = await import('@granary/payments/verify/verifier');
  const evm = await Promise.all(Array.from({ length: paymentsCount }, evmPayment));
  const cosmosPayments = await Promise.all(Array.from({ length: paymentsCount }, (_, index) => cosmosPayment(index)));
  const solana = await solanaPayments();
  const verifier = new Verifier(
    [
      new CosmosExact(() => [cosmos]),
      new EvmExact(parseEvmAssets('usdc-test')),
      new SolanaExact({ assets: parseSolanaAssets('usdc-test'), feePayers: [solana.feePayer] }),
    ],
    () => new Date(),
  );
  const isValid = async (payment: Envelope) => (await verifier.verify(Buffer.from(JSON.stringify(payment)))).isValid;
  schemes = {
    evm: { payments: evm, isValid },
    cosmos: { payments: cosmosPayments, isValid },
    solana: { payments: solana.payments, isValid },
    official: { payments: evm, isValid: await officialFacilitator() },
    officialSolana: { payments: solana.payments, isValid: await officialSolana(() => [solana.feePayer]) },
  };
}

/** The function by which Node loads a module for `require`, which its types do not have. */
const loader = Module as typeof Module & { _load: (name: string, ...others: unknown[]) => unknown };

function refuseBindings(): void {
  const loadModule = loader._load;
  loader._load = (name, ...others) => {
    if (name === 'secp256k1/bindings') throw new Error('there is no native build');
    return loadModule(name, ...others);
  };
}

async function evmPayment(): Promise<Envelope> {
  const { newPayer, transferTypes } = await import('@granary/testing/x402-client');
  const payer = await newPayer();
  const requirement = {
    scheme: 'exact',
    network,
    asset,
    payTo,
    amount: '10000',
    maxTimeoutSeconds: 3_600,
    extra: { name: 'USDC', version: '2' },
  };
  const authorization = {
    from: payer.address,
    to: payTo,
    value: '10000',
    validAfter: '0',
    validBefore: String(Math.floor(Date.now() / 1_000) + 3_600),
    nonce: `0x${randomBytes(32).toString('hex')}`,
  };
  const signature = await payer.signTypedData({
    domain: { name: 'USDC', version: '2', chainId: 84532, verifyingContract: asset },
    types: transferTypes,
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  });
  const paymentPayload = { x402Version: 2, accepted: requirement, payload: { signature, authorization } };
  return { paymentPayload, paymentRequirements: requirement };
}

async function cosmosPayment(index: number): Promise<Envelope> {
  const { newCosmosPayer, signCosmos } = await import('@granary/testing/cosmos-payer');
  const quoteId = `quote-${index}`;
  const address = newCosmosPayer().address;
  const requirement = {
    scheme: 'exact',
    network: cosmos.network,
    asset: 'utia',
    payTo: address,
    amount: '10000',
    maxTimeoutSeconds: 300,
    extra: { quoteId },
  };
  const signedTx = signCosmos(newCosmosPayer(), {
    chainId: 'celestia',
    accountNumber: 7n,
    sequence: 3n,
    denom: 'utia',
    memo: quoteId,
    timeoutHeight: 0n,
    outputs: [{ address, amount: 10_000n }],
    fee: { amount: 400n, gas: 100_000n },
  }).toString('base64');
  const payload = { signedTx, accountNumber: '7' };
  return { paymentPayload: { x402Version: 2, accepted: requirement, payload }, paymentRequirements: requirement };
}

/** Payments that the official client makes, each for a quote of its own. */
async function solanaPayments() {
  const { paySolana, solanaSigner, startSolanaNode } = await import('@granary/testing/solana-client');
  const [payer, payee, feePayer] = await Promise.all([solanaSigner(1), solanaSigner(2), solanaSigner(3)]);
  const node = await startSolanaNode();
  const payments: Envelope[] = [];
  for (let index = 0; index < paymentsCount; index++) {
    const extra = { feePayer: feePayer.address, memo: `quote-${index}` };
    payments.push(await paySolana(2, payer, node.url, { payTo: payee.address, extra }));
  }
  await node.stop();
  return { feePayer: feePayer.address, payments };
}

async function officialSolana(getAddresses: FacilitatorSvmSigner['getAddresses']): Promise<Scheme['isValid']> {
  const { ExactSvmScheme } = await import('@x402/svm/exact/facilitator');
  const signer: FacilitatorSvmSigner = {
    getAddresses,
    simulateTransaction: () => Promise.resolve(),
    signTransaction: neverSend,
    sendTransaction: neverSend,
    confirmTransaction: neverSend,
  };
  const scheme = new ExactSvmScheme(signer);
  return async ({ paymentPayload, paymentRequirements }) =>
    (await scheme.verify(paymentPayload as PaymentPayload, paymentRequirements as PaymentRequirements)).isValid;
}

const neverSend = () => Promise.reject(new Error('nothing is sent'));

async function officialFacilitator(): Promise<Scheme['isValid']> {
  const [{ x402Facilitator }, { ExactEvmScheme }, { verifyTypedData }] = await Promise.all([
    import('@x402/core/facilitator'),
    import('@x402/evm/exact/facilitator'),
    import('viem'),
  ]);
  const signer: FacilitatorEvmSigner = {
    getAddresses: () => ['0x0000000000000000000000000000000000000001'],
    getCode: ({ address }) => Promise.resolve(address.toLowerCase() === asset.toLowerCase() ? '0x60' : undefined),
    verifyTypedData,
    readContract: () => Promise.resolve(true),
    writeContract: neverSend,
    sendTransaction: neverSend,
    waitForTransactionReceipt: neverSend,
  };
  const facilitator = new x402Facilitator().register(network, new ExactEvmScheme(signer));
  return async ({ paymentPayload, paymentRequirements }) =>
    (await facilitator.verify(paymentPayload as PaymentPayload, paymentRequirements as PaymentRequirements)).isValid;
}

/** Verifies payments one after the other. Returns the number per second of processor time. */
async function run({ scheme, seconds }: { scheme: SchemeName; seconds: number }): Promise<number> {
  const { payments, isValid } = schemes[scheme];
  const before = process.cpuUsage();
  const endMs = performance.now() + seconds * 1_000;
  let count = 0;
  while (performance.now() < endMs) {
    if (!(await isValid(payments[count % paymentsCount]!))) throw new Error(`a payment of ${scheme} is not valid`);
    count += 1;
  }
  const { user, system } = process.cpuUsage(before);
  return (count * 1_000_000) / (user + system);
}

const calls = { start, run };

export type VerificationsCalls = typeof calls;

serve(calls);
