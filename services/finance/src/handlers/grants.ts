import { invalid } from '@granary/shared/errors';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { CreatedGrant } from '@granary/shared/gen/granary/finance/v1/CreatedGrant';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { FoundGrant } from '@granary/shared/gen/granary/finance/v1/FoundGrant';
import type { Grant as GrantMessage } from '@granary/shared/gen/granary/finance/v1/Grant';
import type { RevokedGrant } from '@granary/shared/gen/granary/finance/v1/RevokedGrant';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';
import { parseUtia } from '@granary/shared/money/amounts';
import type { Connection } from '@granary/shared/postgres/pool';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { message, type Handlers } from '@granary/shared/rpc/types';
import { findDeduction, startDeduction } from '../grants/deductions';
import {
  chainGrantOf,
  createGrant,
  grantOfKey,
  listGrants,
  revokeGrant,
  type Grant,
  type GrantOptions,
} from '../grants/grants';

/** The calls by which users manage their grants. The gateway has already checked the signature of the wallet. */
export function grantHandlers(
  options: GrantOptions,
): Pick<Handlers<FinanceDefinition>, 'createGrant' | 'listGrants' | 'revokeGrant'> {
  const { pool, chain } = options;
  const { grantee } = chain;
  return {
    createGrant: async ({ address, limitUtia, allowedApps, expiresAt, recipient, idempotency }) => {
      const request = {
        address,
        limitUtia: parseUtia(limitUtia),
        allowedApps,
        ...(expiresAt !== undefined && { expiresAt: dateOf(expiresAt) }),
      };
      const onChain = await chainGrantOf(options, address, recipient);
      const create = async (tx: Connection): Promise<CreatedGrant> => {
        const { grant, userKey } = await createGrant(tx, onChain, request);
        return { grant: toMessage(grant, grantee), userKey };
      };
      const withoutKey = (made: CreatedGrant) => ({ ...made, userKey: '' });
      return retriedTransaction(pool, (tx) =>
        once<CreatedGrant>(tx, toIdempotencyKey(idempotency), () => create(tx), withoutKey),
      );
    },
    listGrants: async ({ address }) => ({
      grants: (await listGrants(pool, address)).map((grant) => toMessage(grant, grantee)),
    }),
    revokeGrant: ({ address, grantId, idempotency }) =>
      retriedTransaction(pool, (tx) =>
        once<RevokedGrant>(tx, toIdempotencyKey(idempotency), async () => ({
          grant: toMessage(await revokeGrant(tx, chain, address, grantId), grantee),
        })),
      ),
  };
}

/** The calls by which the payments service finds grants by their keys and makes deductions under them. */
export function deductionHandlers({
  pool,
  chain: { grantee },
}: GrantOptions): Pick<Handlers<ChainDefinition>, 'findGrant' | 'deduct' | 'findDeduction'> {
  return {
    findGrant: async ({ keyHash }) => {
      const grant = await grantOfKey(pool, keyHash);
      return message<FoundGrant>({ grant: grant && toMessage(grant, grantee) });
    },
    deduct: async ({ deductionId: id, amountUtia, ...asked }) => ({
      refusedBecause: (await startDeduction(pool, { ...asked, id, amount: parseUtia(amountUtia) })) ?? '',
    }),
    findDeduction: async ({ deductionId }) => {
      const deduction = await findDeduction(pool, deductionId);
      return {
        state: deduction?.state ?? '',
        hash: deduction?.hash ?? '',
        height: (deduction?.height ?? 0n).toString(),
        reason: deduction?.reason ?? '',
        atMs: String(deduction?.updatedAt.getTime() ?? 0),
      };
    },
  };
}

function dateOf(text: string): Date {
  const date = new Date(text);
  if (!Number.isNaN(date.getTime())) return date;
  throw invalid('The grant is not valid', { expires_at: ['must be an RFC 3339 date and time'] });
}

const toMessage = (grant: Grant, grantee: string): GrantMessage =>
  message<GrantMessage>({
    grantId: grant.id,
    address: grant.address,
    grantee,
    allowedApps: grant.allowedApps ?? [],
    limitUtia: grant.limitUtia.toString(),
    spentUtia: grant.spentUtia.toString(),
    expiresAt: grant.expiresAt.toISOString(),
    createdAt: grant.createdAt.toISOString(),
    revokedAt: grant.revokedAt?.toISOString(),
  });
