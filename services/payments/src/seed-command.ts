import { readConfig, type Environment } from '@granary/shared/config';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { z } from 'zod';
import { checksummed } from './evm-address';
import { openGasKey } from './evm-rpc/gas-key';
import { openFeeKey } from './solana-rpc/fee-key';

const seedConfig = z.object({ X402_KEY_FILE: z.string({ error: 'the file of the seed is needed' }).min(1) });

/**
 * The command `seed`: makes the file that X402_KEY_FILE names unless it is there, and prints the addresses of its accounts,
 * which have to be sent what pays gas and fees. Throws a KeyFileError for a file that is there and cannot be used.
 */
export async function showGasAccounts(environment: Environment): Promise<void> {
  const { X402_KEY_FILE: path } = readConfig(seedConfig, environment);
  await makeSeedFile(path);
  const [gas, fees] = await Promise.all([openGasKey(path), openFeeKey(path)]);
  process.stdout.write(`EVM networks: ${checksummed(gas.address)}\nSolana: ${fees.address}\n`);
}
