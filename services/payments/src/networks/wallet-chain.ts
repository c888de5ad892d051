import { Backoff } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { ChainDescription } from '@granary/shared/gen/granary/finance/v1/ChainDescription';
import { newDocumentId } from '@granary/shared/ids';
import type { Logger } from '@granary/shared/logger';
import { newCall, type Client } from '@granary/shared/rpc/types';

const retries = { firstMs: 200, maxMs: 5_000 };
const timeoutMs = 5_000;

export interface WalletChainOptions {
  chain: () => Pick<Client<ChainDefinition>, 'describeChain'>;
  log: Logger;
  /** Called once. */
  onKnown: (description: ChainDescription) => void;
}

/**
 * Asks finance which chain the wallets are on, until it answers: it starts after this service. The answer never
 * changes. Until then no payments on that chain are taken.
 */
export function findWalletChain({ chain, log, onKnown }: WalletChainOptions): { stop(): Promise<void> } {
  const stopping = new Cancellation();
  const backoff = new Backoff(retries);
  const running = (async () => {
    while (!stopping.aborted) {
      try {
        onKnown(await chain().describeChain({}, newCall(newDocumentId(), timeoutMs)));
        return;
      } catch (error) {
        log.debug({ err: error }, 'the chain of the wallets is not known yet');
        await backoff.wait(stopping);
      }
    }
  })();
  return {
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}
