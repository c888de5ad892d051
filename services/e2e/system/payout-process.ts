import { setTimeout as delay } from 'node:timers/promises';
import { advancePayouts } from '@granary/finance/payouts/payout-task';
import { openSimulatedNode } from '@granary/finance/simulated-chain/simulated-node';
import type { SimulatedChainSettings } from '@granary/finance/simulated-chain/settings';
import { addressOf } from '@granary/shared/money/cosmos/address';
import { openKeyFile } from '@granary/finance/wallets/keys';
import { createLogger } from '@granary/shared/logger';
import { createPool } from '@granary/shared/postgres/pool';

export interface PayingOrders {
  url: string;
  keyFile: string;
  settings: SimulatedChainSettings;
  timeoutBlocks: number;
}

/** A process to be killed, that pays the payouts of a database until then. */
process.once('message', (orders: PayingOrders) => void pay(orders));

async function pay({ url, keyFile, settings, timeoutBlocks }: PayingOrders): Promise<void> {
  const log = createLogger('test', 'silent');
  const pool = createPool({ url, size: 2, applicationName: 'payouts', log });
  const keys = await openKeyFile(keyFile, { create: false });
  const { prefix, denom, gasPrice } = settings;
  const sender = addressOf(await keys.publicKey('hot'), prefix);
  const chain = await openSimulatedNode({ pool, settings });
  const options = { pool, chain, keys, log, sender, denom, gasPrice, timeoutBlocks };
  for (;;) {
    // Answers are lost by configuration.
    const step = await advancePayouts(options).catch(() => 'waiting' as const);
    if (step !== 'progress') await delay(settings.blockMs / 2);
  }
}
