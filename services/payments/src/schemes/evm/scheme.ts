import { wrongConfig } from '@granary/shared/config';
import { playMoneyNetwork } from '@granary/shared/money/play-money';
import type { PaymentAddress, Scheme } from '../../networks/scheme';
import { checksummed, isEvmNetwork, lowerAllCapitals, readEvmAddress } from './address';
import { keysOfShortName, parseEvmAssets } from './assets';
import { maxFeeOn } from './max-fees';
import { evmMethods } from './methods';
import { evmRpcUrls, evmSettings } from './settings';
import { EvmExact } from './verify';

const addressPattern = /^0x[0-9a-fA-F]{40}$/;
const tokenPattern = /^(eip155:[1-9]\d{0,15})\/(0x[0-9a-fA-F]{40})$/;

/** Test networks in addition to those of `usdc-test`: Sepolia, and the networks of development nodes. */
const otherTestNetworks = ['eip155:11155111', 'eip155:31337', 'eip155:1337'];
const testNetworks: ReadonlySet<string> = new Set([
  ...keysOfShortName('usdc-test')!.map((key) => key.split('/')[0]!),
  ...otherTestNetworks,
]);

/** Whether an address has the form of one on EVM networks, whatever its capitals. */
export const isEvmAddress = ({ address }: PaymentAddress): boolean => addressPattern.test(address);

/** Why an address is none although it has the form of one: its capitals are not its checksum (EIP-55). */
export const mistypedEvmAddress = ({ network, address }: PaymentAddress): string | undefined =>
  readEvmAddress(address) === undefined
    ? `the address on ${network} is mistyped: its capitals are not its checksum (EIP-55); all in lower case it would be taken as it is`
    : undefined;

const takes = (network: string): boolean => isEvmNetwork(network) && network !== playMoneyNetwork;

function tokensOf(name: string): string[] {
  const keys = keysOfShortName(name);
  if (keys) return keys;
  const [, network, address] = tokenPattern.exec(name) ?? [];
  const read = address === undefined ? undefined : readEvmAddress(lowerAllCapitals(address));
  return read === undefined ? [] : [`${network!}/${read}`];
}

/** Payments in tokens on EVM networks, by signed authorizations of transfers (EIP-3009). */
export const evm: Scheme<typeof evmSettings> = {
  settings: evmSettings,
  nodes: evmRpcUrls,
  example: 'eip155:8453=0x…',
  takes,
  // Clients would take the capitals for a checksum.
  toOffered: lowerAllCapitals,
  isAddress: isEvmAddress,
  mistyped: mistypedEvmAddress,
  worthOf: (network) => (testNetworks.has(network) ? 'test' : 'real'),
  tokensOf,
  feeAccount: async (keyFile) => {
    const { openGasKey } = await import('@granary/payments/schemes/evm/gas-key');
    return `EVM networks: ${checksummed((await openGasKey(keyFile)).address)}`;
  },
  open: async (config, { pool, log, everyMs, addresses }) => {
    const assets = parseEvmAssets(config.X402_EVM_ASSETS).filter(({ network }) => takes(network));
    const methods = evmMethods(addresses, assets);
    const urls = evmRpcUrls.in(config);
    if (urls.size === 0) return { verifier: new EvmExact(assets), networks: [], methods: () => methods };
    if (urls.has(playMoneyNetwork)) {
      throw wrongConfig([['EVM_RPC_URLS', `${playMoneyNetwork} is the simulated network`]]);
    }
    // Its libraries are loaded only where there are such networks.
    const { openEvmNetworks } = await import('@granary/payments/schemes/evm/open-networks');
    const { address, ...opened } = await openEvmNetworks(pool, log, {
      urls,
      keyFile: config.X402_KEY_FILE!,
      timeoutMs: config.EVM_RPC_TIMEOUT_MS,
      everyMs,
      depthBlocks: config.EVM_DEPTH_BLOCKS,
      replaceAfterMs: config.EVM_REPLACE_AFTER_MS,
      waitMs: config.X402_SETTLE_WAIT_MS,
      maxFeeOn: (network) => maxFeeOn(network, config.EVM_MAX_FEE_GWEI),
    });
    return { ...opened, verifier: new EvmExact(assets, { 'eip155:*': [address] }), methods: () => methods };
  },
};
