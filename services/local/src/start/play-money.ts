import type { Environment } from '@granary/shared/config';

/**
 * Settings with payments on the chain of the wallets, and on the simulated network of x402, where nothing else is said
 * about payments and that chain is simulated too.
 */
export const withPlayMoney = (settings: Environment): Environment =>
  (settings['CHAIN'] ?? 'simulated') === 'simulated' ? { X402_PAY_TO: 'wallets,simulated', ...settings } : settings;
