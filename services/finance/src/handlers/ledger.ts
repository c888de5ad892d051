import { forbidden, invalid } from '@granary/shared/errors';
import type { Command as CommandMessage } from '@granary/shared/gen/granary/finance/v1/Command';
import type { Entry as EntryMessage } from '@granary/shared/gen/granary/finance/v1/Entry';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import type { Movement } from '@granary/shared/gen/granary/finance/v1/Movement';
import { playMoneyNetwork } from '@granary/shared/money/play-money';
import type { Handlers } from '@granary/shared/rpc/types';
import { openAccounts, readBalances } from '../ledger/accounts';
import type { Command, Group, Result } from '../ledger/commands';
import { accountByName, kindsOf, mayAsk, walletApp } from '../ledger/kinds';
import type { LedgerBatches } from '../ledger/ledger-batches';
import { listOpenHolds } from '../ledger/open-holds';
import { listEntries, type Entry } from '../ledger/statement';
import { getWallet, type Wallets } from '../wallets/wallet';

const commandsMax = 1_000;
const accountsMax = 1_000;
const entriesMax = 1_000;
const holdsMax = 1_000;

/** The Ledger service, for payments: it moves money by kinds of transfer that are its own. */
export function ledgerHandlers({
  wallets,
  ledger,
  takesPlayMoney,
}: {
  wallets: Wallets;
  ledger: LedgerBatches;
  /** Whether wallets hold play money themselves: the chain is simulated. */
  takesPlayMoney: boolean;
}): Handlers<LedgerDefinition> {
  return {
    apply: async ({ groups }) => {
      const commandGroups = groups.map(({ commands }) => commands.map(toCommand));
      assertMayApply(commandGroups);
      const refuses = (group: Group) => !takesPlayMoney && group.some(isPlayMoney);
      const applied = commandGroups.filter((group) => !refuses(group));
      const ofApplied = (applied.length === 0 ? [] : await applyAll(wallets, ledger, applied)).values();
      const resultsOf = (group: Group) =>
        refuses(group) ? group.map(() => playMoneyRefused) : ofApplied.next().value!.map(toResult);
      return { groups: commandGroups.map((group) => ({ results: resultsOf(group) })) };
    },

    getBalances: async ({ accounts }) => {
      if (accounts.length > accountsMax) throw outOf('accounts', accountsMax);
      const balances = await readBalances(wallets.pool, accounts);
      return {
        balances: balances.map(({ id, unit, ...counters }) => ({
          account: id,
          unit,
          debitsPending: counters.debitsPending.toString(),
          debitsPosted: counters.debitsPosted.toString(),
          creditsPending: counters.creditsPending.toString(),
          creditsPosted: counters.creditsPosted.toString(),
          payoutsPending: counters.payoutsPending.toString(),
          payoutsPosted: counters.payoutsPosted.toString(),
        })),
      };
    },

    listEntries: async ({ account, after, limit }) => {
      if (limit < 1 || limit > entriesMax) throw outOf('limit', entriesMax);
      const entries = await listEntries(wallets.pool, account, { after: BigInt(after), limit });
      return { entries: entries.map(toEntry) };
    },

    listHolds: async ({ refPrefix, expireByMs, afterExpiresAtMs, afterRef, limit }) => {
      if (limit < 1 || limit > holdsMax) throw outOf('limit', holdsMax);
      const after = { expiresAt: new Date(Number(afterExpiresAtMs)), ref: afterRef };
      const expireBy = new Date(Number(expireByMs));
      const holds = await listOpenHolds(wallets.pool, {
        kinds: kindsOf('payments'),
        refPrefix,
        expireBy,
        after,
        limit,
      });
      return {
        holds: holds.map(({ id, kind, amount, ref, expiresAt }) => ({
          id,
          kind,
          amount: amount.toString(),
          ref,
          expiresAtMs: String(expiresAt.getTime()),
        })),
      };
    },
  };
}

/**
 * Whether a command moves money that was collected on the simulated network of x402. It must not be credited to wallets
 * with real money.
 */
const isPlayMoney = (command: Command): boolean =>
  'ref' in command && command.debitAccount.startsWith(`world:${playMoneyNetwork}/`);
const playMoneyRefused = { outcome: 'refused' as const, reason: 'PLAY_MONEY', amount: '0' };

const outOf = (field: string, max: number) =>
  invalid('The request is out of bounds', { [field]: [`must be 1 to ${max}`] });

/** Throws for the whole request: a caller that asks for what it never may has a bug. */
function assertMayApply(groups: readonly Group[]): void {
  const count = groups.reduce((sum, group) => sum + group.length, 0);
  if (count < 1 || count > commandsMax || groups.some((group) => group.length === 0))
    throw outOf('commands', commandsMax);
  const denied = groups.flat().find((command) => !mayAsk('payments', command));
  if (denied)
    throw forbidden(
      `The caller may not ask for a transfer of kind ${JSON.stringify(denied.kind)} between these accounts`,
    );
}

/** Applies groups; accounts that are used for the first time are opened, and their groups are applied again. */
async function applyAll(wallets: Wallets, ledger: LedgerBatches, groups: readonly Group[]): Promise<Result[][]> {
  const results = await Promise.all(groups.map((group) => ledger.apply(group)));
  const missing = groups.filter((_, index) => results[index]!.some(isMissingAccount));
  if (missing.length === 0) return results;
  const names = missing.flat().flatMap((each) => ('ref' in each ? [each.debitAccount, each.creditAccount] : []));
  for (const id of new Set(names)) await openByName(wallets, id);
  const applyAgain = async (group: Group, first: Result[]): Promise<Result[]> =>
    first.some(isMissingAccount) ? ledger.apply(group) : first;
  return Promise.all(groups.map((group, index) => applyAgain(group, results[index]!)));
}

const isMissingAccount = (result: Result): boolean =>
  result.outcome === 'refused' && result.reason === 'ACCOUNT_NOT_FOUND';

/** Opens an account unless it is there. A name that no account has opens none, so its command stays refused. */
async function openByName(wallets: Wallets, id: string): Promise<void> {
  const app = walletApp(id);
  const account = accountByName(id);
  if (app !== undefined) await getWallet(wallets, app);
  else if (account) await openAccounts(wallets.pool, [account]);
}

function toCommand({ id, kind, transfer, hold, post, void: voiding }: CommandMessage): Command {
  const actions = [transfer, hold, post, voiding].filter((each) => each !== null && each !== undefined);
  if (actions.length !== 1) throw invalid('A command has one of transfer, hold, post and void');
  if (transfer) return { type: 'transfer', id, kind, ...toMovement(transfer), atMost: transfer.atMost };
  if (hold) {
    const expiresAtMs = Number(hold.expiresAtMs);
    return {
      type: 'hold',
      id,
      kind,
      ...toMovement(hold),
      ...(expiresAtMs !== 0 && { expiresAt: new Date(expiresAtMs) }),
    };
  }
  if (post) {
    const { holdId, amount } = post;
    return { type: 'post', id, kind, holdId, ...(amount !== undefined && { amount: BigInt(amount) }) };
  }
  return { type: 'void', id, kind, holdId: voiding!.holdId };
}

const toMovement = ({ debitAccount, creditAccount, amount, ref }: Movement) => ({
  debitAccount,
  creditAccount,
  amount: BigInt(amount),
  ref,
});

const toResult = (result: Result) =>
  result.outcome === 'refused'
    ? { outcome: result.outcome, reason: result.reason, amount: '0' }
    : { outcome: result.outcome, reason: '', amount: result.amount.toString() };

const toEntry = (entry: Entry): EntryMessage => ({
  number: entry.number.toString(),
  id: entry.id,
  debitAccount: entry.debitAccount,
  creditAccount: entry.creditAccount,
  amount: entry.amount.toString(),
  phase: entry.phase,
  kind: entry.kind,
  ref: entry.ref,
  holdId: entry.holdId ?? '',
  createdAt: entry.createdAt.toISOString(),
});
