import { randomBytes } from 'node:crypto';
import Module, { createRequire } from 'node:module';
import { serve } from '../child.mjs';

/**
 * Verifications of x402 payments in this process: ours, and by the official facilitators on chains that answer at once.
 */
const kept = 64;
const network = 'eip155:84532';
const asset = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
const payTo = '0x209693Bc6afc0C5328bA36FaF03C514EF312287C';
const cosmos = { network: 'cosmos:celestia', prefix: 'celestia', denom: 'utia', memoBytesMax: 256 };
const load = createRequire(import.meta.url);

const verify = {};
const payments = {};

/** With `webAssembly` the curve has no native build, as on platforms for which there is none. */
async function start({ webAssembly = false } = {}) {
  if (webAssembly) refuseBindings();
  const { parseEvmAssets } = load('@granary/payments/schemes/evm/assets');
  const { EvmExact } = load('@granary/payments/schemes/evm/verify');
  const { CosmosExact } = load('@granary/payments/schemes/cosmos/verify');
  const { parseSolanaAssets } = load('@granary/payments/schemes/solana/assets');
  const { SolanaExact } = load('@granary/payments/schemes/solana/verify');
  const { Verifier } = load('@granary/payments/verify/verifier');
  payments.evm = await Promise.all(Array.from({ length: kept }, evmPayment));
  payments.official = payments.evm;
  payments.cosmos = Array.from({ length: kept }, (_, at) => cosmosPayment(at));
  const solana = await solanaPayments();
  payments.solana = solana.payments;
  payments.officialSolana = solana.payments;
  const schemes = [
    new CosmosExact(() => [cosmos]),
    new EvmExact(parseEvmAssets('usdc-test')),
    new SolanaExact({ assets: parseSolanaAssets('usdc-test'), feePayers: [solana.feePayer] }),
  ];
  const verifier = new Verifier(schemes, () => new Date());
  const ours = async (envelope) => (await verifier.verify(Buffer.from(JSON.stringify(envelope)))).isValid;
  Object.assign(verify, { evm: ours, cosmos: ours, solana: ours });
  verify.official = await officialFacilitator();
  verify.officialSolana = await officialSolana(solana.feePayer);
}

function refuseBindings() {
  const loadModule = Module._load;
  Module._load = (name, ...others) => {
    if (name === 'secp256k1/bindings') throw new Error('there is no native build');
    return loadModule(name, ...others);
  };
}

async function evmPayment() {
  const { newPayer, transferTypes } = load('@granary/testing/x402-client');
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

function cosmosPayment(at) {
  const { newCosmosPayer, signCosmos } = load('@granary/testing/cosmos-payer');
  const quoteId = `quote-${at}`;
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

/** Of the official client, each for a quote of its own. */
async function solanaPayments() {
  const { paySolana, solanaSigner, startSolanaNode } = load('@granary/testing/solana-client');
  const [payer, payTo, feePayer] = await Promise.all([1, 2, 3].map(solanaSigner));
  const node = await startSolanaNode();
  const made = [];
  for (let at = 0; at < kept; at++) {
    const extra = { feePayer: feePayer.address, memo: `quote-${at}` };
    made.push(await paySolana(2, payer, node.url, { payTo: payTo.address, extra }));
  }
  await node.stop();
  return { feePayer: feePayer.address, payments: made };
}

async function officialSolana(feePayer) {
  const { ExactSvmScheme } = await import('@x402/svm/exact/facilitator');
  const signer = { getAddresses: () => [feePayer], simulateTransaction: () => Promise.resolve() };
  const scheme = new ExactSvmScheme(signer);
  return async ({ paymentPayload, paymentRequirements }) =>
    (await scheme.verify(paymentPayload, paymentRequirements)).isValid;
}

async function officialFacilitator() {
  const [{ x402Facilitator }, { ExactEvmScheme }, { verifyTypedData }] = await Promise.all([
    import('@x402/core/facilitator'),
    import('@x402/evm/exact/facilitator'),
    import('viem'),
  ]);
  const never = () => Promise.reject(new Error('nothing is sent'));
  const signer = {
    getAddresses: () => ['0x0000000000000000000000000000000000000001'],
    getCode: ({ address }) => Promise.resolve(address.toLowerCase() === asset.toLowerCase() ? '0x60' : undefined),
    verifyTypedData,
    readContract: () => Promise.resolve(true),
    writeContract: never,
    sendTransaction: never,
    waitForTransactionReceipt: never,
  };
  const facilitator = new x402Facilitator().register(network, new ExactEvmScheme(signer));
  return async ({ paymentPayload, paymentRequirements }) =>
    (await facilitator.verify(paymentPayload, paymentRequirements)).isValid;
}

/** Verifications a second of processor time, one after the other. */
async function run({ scheme, seconds }) {
  const before = process.cpuUsage();
  const endMs = performance.now() + seconds * 1_000;
  let count = 0;
  while (performance.now() < endMs) {
    const payment = payments[scheme][count % kept];
    if (!(await verify[scheme](payment))) throw new Error(`a payment of ${scheme} is not valid`);
    count += 1;
  }
  const { user, system } = process.cpuUsage(before);
  return (count * 1_000_000) / (user + system);
}

serve({ start, run });
