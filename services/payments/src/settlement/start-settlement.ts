import { randomUUID } from 'node:crypto';
import { createSignal } from '@granary/shared/concurrency/signal';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Client } from '@granary/shared/rpc/types';
import type { SettlementNetwork } from '../networks/settlement-network';
import type { OfferSettings } from '../quotes/offers';
import type { Verifier } from '../verify/verifier';
import { Claims } from './claims';
import type { FacilitatorOptions } from './facilitator';
import { RequestPayments } from './payments';
import { Settler } from './settler';
import { startSettlementTasks } from './settlement-task';
import { PaymentVerification } from './verify-payment';
import { strandedPayments } from './stranded-payments';

const usualEveryMs = 5_000;

export interface SettlementOptions {
  config: Pick<FacilitatorOptions, 'X402_SETTLE' | 'X402_SETTLE_WAIT_MS'>;
  pool: Pool;
  log: Logger;
  now: () => Date;
  ledger: () => Pick<Client<LedgerDefinition>, 'apply'>;
  offers: OfferSettings;
  verifier: Verifier;
  networks: ReadonlyMap<string, SettlementNetwork>;
  /** Whether these are all of the configuration. */
  areKnown: () => boolean;
  everyMs: number | undefined;
}

export interface Settlement {
  requestPayments: RequestPayments;
  facilitator: FacilitatorOptions;
  verification: PaymentVerification;
  /** Counts the payments on networks that are not configured, in words; empty: there are none. */
  strandedPayments: () => Promise<string>;
  stop(): Promise<void>;
}

/** Starts what settles payments in this process, and what takes up those of processes that have ended. */
export function startSettlement(options: SettlementOptions): Settlement {
  const { config, pool, log, now, ledger, offers, verifier, networks, areKnown } = options;
  const { everyMs = usualEveryMs } = options;
  const claims = new Claims(pool, randomUUID());
  const settled = createSignal();
  const settler = new Settler({ claims, networks, log, now, onSettled: () => settled.notify() });
  const stranded = () => strandedPayments({ claims, networks, areKnown });
  const shared = {
    presented: { offers, verifier },
    claims,
    settler,
    X402_SETTLE_WAIT_MS: config.X402_SETTLE_WAIT_MS,
    now,
  };
  const tasks = startSettlementTasks({
    pool,
    log,
    claims,
    settler,
    ledger,
    everyMs,
    settled,
    strandedPayments: stranded,
  });
  return {
    requestPayments: new RequestPayments(shared),
    facilitator: { ...shared, X402_SETTLE: config.X402_SETTLE },
    verification: new PaymentVerification(shared),
    strandedPayments: stranded,
    stop: async () => {
      await settler.stop();
      await tasks.stop();
    },
  };
}
