import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { anvilNetwork, usdc, type Anvil } from '@granary/testing/anvil';
import type { newPayer } from '@granary/testing/x402-client';
import { send, type Granary } from './granary';

/**
 * The settings by which payments on a chain go to an address, for 1 unit of the token a utia, with a new account for
 * gas.
 */
export async function evmSettings(anvil: Anvil, payTo: string): Promise<Record<string, string>> {
  const keyFile = join(await mkdtemp(join(tmpdir(), 'granary-gas-')), 'seed');
  await makeSeedFile(keyFile);
  return {
    X402_PAY_TO: `${anvilNetwork}=${payTo}`,
    X402_RATES: `${anvilNetwork}/${usdc}=1000000`,
    EVM_RPC_URLS: `${anvilNetwork}=${anvil.url}`,
    X402_KEY_FILE: keyFile,
  };
}

/**
 * Gives the account that pays the gas of a Granary some of it, and returns its address. Until then the network is
 * closed.
 */
export async function fundGas({ url }: Pick<Granary, 'url'>, anvil: Anvil): Promise<string> {
  const { body } = await send<{ signers: Record<string, [string]> }>(url, 'GET', '/x402/supported');
  const [address] = body.signers['eip155:*']!;
  await anvil.setBalance(address, 10n ** 18n);
  return address;
}

/** A fetch that pays by itself, by the official client, which sends its requests by `inner`. */
export async function payingFetch(
  payer: Awaited<ReturnType<typeof newPayer>>,
  inner: typeof fetch = fetch,
): Promise<typeof fetch> {
  const { wrapFetchWithPayment, x402Client } = await import('@x402/fetch');
  const { registerExactEvmScheme } = await import('@x402/evm/exact/client');
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: payer });
  return wrapFetchWithPayment(inner, client) as typeof fetch;
}
