import { bech32 } from '@scure/base';
import type { ChainDescription } from '@granary/shared/gen/granary/finance/v1/ChainDescription';
import { simulatedChainPrefix } from '@granary/shared/money/play-money';
import { watchNetwork } from '../../networks/watch-network';
import type { PaymentMethod } from '../../networks/payment-method';
import { ofWallets, type PaymentAddress, type Scheme } from '../../networks/scheme';
import type { SettlementNetwork } from '../../networks/settlement-network';
import { version1NameOf } from '../../verify/version1-names';
import { GrantPayments } from './grant-payments';
import { CosmosSettlement } from './network';
import { SentTransactions } from './sent-transactions';
import { CosmosExact, type CosmosNetwork } from './verify';

const namePattern = /^cosmos:[-_a-zA-Z0-9]{1,32}$/;
const memoBytesMax = 256;
const decimals = 6;
/**
 * How long a request waits at most for the block of a transaction that its payer has sent: the call that verifies it
 * takes no longer.
 */
const sentWaitMsMax = 5_000;

function isCosmosAddress(text: string): boolean {
  const decoded = text === text.toLowerCase() ? bech32.decodeUnsafe(text) : undefined;
  const bytes = decoded && bech32.fromWordsUnsafe(decoded.words);
  return bytes?.length === 20 || bytes?.length === 32;
}

const isSimulated = (network: string): boolean => network.startsWith(`cosmos:${simulatedChainPrefix}`);

/** The way to pay in utia on a Cosmos chain. */
export const cosmosMethod = ({ network, address: payTo }: PaymentAddress): PaymentMethod => ({
  network,
  version1Network: version1NameOf(network),
  payTo,
  asset: 'utia',
  rateOf: undefined,
  extra: { chainType: 'cosmos', paymentMethod: 'native', tokenSymbol: 'TIA', tokenDecimals: decimals },
});

/** The chain of an address, as far as the address says it. */
const chainOf = ({ network, address }: PaymentAddress): CosmosNetwork => ({
  network,
  prefix: address.slice(0, address.lastIndexOf('1')),
  denom: 'utia',
  memoBytesMax,
});

function anotherChain(addresses: readonly PaymentAddress[], chain: string): string | undefined {
  const another = addresses.find(({ network }) => network.startsWith('cosmos:') && network !== chain);
  return (
    another &&
    `X402_PAY_TO names ${another.network}, but of the Cosmos chains payments are settled on that of the wallets only, ${chain}. Set X402_PAY_TO=wallets, or name ${chain} with an address, or have finance use the other chain (CHAIN, CHAIN_ID).`
  );
}

/** Payments in utia on the chain of the wallets, which becomes known once finance names it. */
export const cosmos: Scheme<Record<never, never>> = {
  settings: {},
  example: 'cosmos:celestia=celestia1…',
  shorthand: { word: ofWallets, address: { network: ofWallets, address: '' } },
  takesOneNetwork: true,
  takes: (network) => network === ofWallets || namePattern.test(network),
  isAddress: ({ network, address }) => (network === ofWallets ? address === '' : isCosmosAddress(address)),
  worthOf: (network) => (isSimulated(network) ? 'play' : 'test or real'),
  tokensOf: () => [],
  problemWithWallets: anotherChain,
  open: (config, { chain, now, log, everyMs, addresses: [taken], minimumOn }) => {
    const named = taken && taken.network !== ofWallets ? taken : undefined;
    let chains = named ? [chainOf(named)] : [];
    let methods = named ? [cosmosMethod(named)] : [];
    let watching: { stop(): Promise<void> } | undefined;
    const openWalletChain = ({ chainId, address, ...description }: ChainDescription): SettlementNetwork => {
      const network = `cosmos:${chainId}`;
      const waitMs = Math.min(config.X402_SETTLE_WAIT_MS, sentWaitMsMax);
      const sent = new SentTransactions({ network, chain, now, waitMs });
      const grants = new GrantPayments(network, chain, now, isSimulated(network) ? 0n : minimumOn(network));
      const settlement = new CosmosSettlement(network, chain, now, sent, grants);
      watching = watchNetwork({ watch: () => settlement.watch(address, log) }, everyMs);
      if (!named) methods = [cosmosMethod({ network, address })];
      chains = [{ network, ...description }];
      return settlement;
    };
    return Promise.resolve({
      verifier: new CosmosExact(() => chains),
      networks: [],
      methods: () => methods,
      openWalletChain: taken && openWalletChain,
      stop: async () => watching?.stop(),
    });
  },
};
