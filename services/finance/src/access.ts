import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import type { AccessTo } from '@granary/shared/rpc/access';

// Services that have a reason to move money may; the gateway, which strangers reach, is none of them.

export const financeAccess = { gateway: '*' } satisfies AccessTo<FinanceDefinition>;

export const ledgerAccess = { payments: '*' } satisfies AccessTo<LedgerDefinition>;

export const chainAccess = { payments: '*' } satisfies AccessTo<ChainDefinition>;
