import { neverAborted } from '@granary/shared/concurrency/cancellation';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import { invalid, unavailable } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Command } from '@granary/shared/gen/granary/finance/v1/Command';
import type { CommandResult } from '@granary/shared/gen/granary/finance/v1/CommandResult';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import type { CompleteSpendRequest } from '@granary/shared/gen/granary/payments/v1/CompleteSpendRequest';
import type { ReserveSpendRequest } from '@granary/shared/gen/granary/payments/v1/ReserveSpendRequest';
import type { SpendLimits } from '@granary/shared/gen/granary/payments/v1/SpendLimits';
import type { SpendReservation } from '@granary/shared/gen/granary/payments/v1/SpendReservation';
import type { Call, Client } from '@granary/shared/rpc/types';
import { parseUtia } from '@granary/shared/money/amounts';
import { parseTicket } from '@granary/shared/ids';
import { transferId } from '@granary/shared/money/transfer-id';
import { appShareOf, divideShares } from '../settings/app-share';
import { refused as refusedPayment } from '../payment-refused';
import { refOfWrite, writeHoldExpiry } from './held-writes';
import { postOf, voidOf } from './hold-endings';

/** Keys whose allowance is known to be in the ledger, and for how long that is remembered. */
const knownKeys = { max: 10_000, ttlMs: 3_600_000 };

/** How long a caller may ask for a reservation to last: longer than any upload takes. */
const lastsMsMax = 90_000_000;

/** Payments that share a reservation. */
const paymentsMax = 1_000;

/** The kinds of transfer of a payment, see finance/src/ledger/kinds.ts. */
const kinds = ['spend', 'spend_share', 'allowance_spend'] as const;
type Kind = (typeof kinds)[number];
const isKind = (text: string): text is Kind => (kinds as readonly string[]).includes(text);

/** Why a payment by an agent key is refused, in the order in which the reasons are looked at. */
export type SpendRefusal =
  'agent_key_expired' | 'over_max_per_tx' | 'allowance_spent' | 'target_not_allowed' | 'insufficient_funds';

const messages: Readonly<Record<SpendRefusal, string>> = {
  agent_key_expired: 'The agent key has expired',
  over_max_per_tx: 'The price is higher than the agent key may pay at once',
  allowance_spent: 'The agent key has spent its allowance',
  target_not_allowed: 'The agent key may not pay this app',
  insufficient_funds: 'The wallet of the agent key has too little money',
};

const refused = (reason: SpendRefusal) => refusedPayment(reason, messages[reason]);

export interface AgentPaymentsOptions {
  /** The ledger of finance. */
  ledger: () => Pick<Client<LedgerDefinition>, 'apply' | 'getBalances'>;
  /** Knows which writes were done. */
  data: () => Pick<Client<DataDefinition>, 'closeWrite'>;
  APP_SHARE_PERCENT: number;
  /**
   * How long a reservation holds money back that is neither completed nor cancelled, unless it is for a write or is
   * asked to last longer.
   */
  AGENT_RESERVATION_MS: number;
  now: () => Date;
}

/**
 * Payments by agent keys. They move money of the application that has the key to another application and the platform,
 * within the limits of the key. A payment is reserved before the work that it buys, and then completed or cancelled.
 * All its legs and the allowance of the key change together or not at all.
 */
export class AgentPayments {
  private readonly allowances = new TtlCache<true>(knownKeys);

  constructor(private readonly options: AgentPaymentsOptions) {}

  /** Throws PAYMENT_REFUSED with the reason, UNAVAILABLE. */
  async reserve(request: ReserveSpendRequest, call: Call): Promise<SpendReservation> {
    const amounts = amountsOf(request);
    const limits = request.limits!;
    const { writeTicketId } = request;
    if (writeTicketId !== undefined && !parseTicket(writeTicketId)) throw invalid('There is no such ticket');
    const { maxPaymentPerTx, spendAllowance, expiresAt } = limits;
    if (expiresAt !== undefined && !(Date.parse(expiresAt) > this.options.now().getTime())) {
      throw refused('agent_key_expired');
    }
    const maxUtiaPerTx = maxPaymentPerTx === undefined ? undefined : parseUtia(maxPaymentPerTx);
    if (maxUtiaPerTx !== undefined && amounts.some((one) => one > maxUtiaPerTx)) throw refused('over_max_per_tx');
    if (spendAllowance !== undefined) await this.openAllowance(request.keyId, parseUtia(spendAllowance), call);
    if (!limits.anyTarget && !limits.allowedTargetApps.includes(request.targetAppId)) {
      await this.assertAllowance(request.keyId, limits, sumOf(amounts), call);
      throw refused('target_not_allowed');
    }
    const appSharePpm = appShareOf(this.options, request.appSharePpm);
    const holds = this.holdsOf(request, legsOf(amounts, appSharePpm), spendAllowance !== undefined);
    const results = await this.apply(holds, call);
    assertHeld(holds, results);
    const { paymentId, atMs } = request;
    const kinds = holds.map(({ kind }) => kind);
    return { paymentId, atMs, kinds, appSharePpm, ...(writeTicketId !== undefined && { writeTicketId }) };
  }

  /** Throws UNAVAILABLE: the outcome is unknown, or the reservation has ended and nothing was moved. */
  async complete(request: CompleteSpendRequest, call: Call): Promise<void> {
    if (!(await this.move(request, call))) throw unavailable('The payment took too long, and nothing was moved');
  }

  /** Moves what is reserved, once; false where the reservation has ended, and nothing was moved. Throws UNAVAILABLE. */
  async move(request: CompleteSpendRequest, call: Call): Promise<boolean> {
    const reservation = request.reservation!;
    const legs = legsOf(amountsOf(request), reservation.appSharePpm);
    const results = await this.apply(
      heldOf(reservation).map(({ kind, holdId, at }) =>
        legs[kind] > 0n ? postOf(kind, holdId, at, legs[kind]) : voidOf(kind, holdId, at),
      ),
      call,
    );
    return results.every(isApplied);
  }

  /** Releases the reserved amounts. Holds that have already ended stay as they are. */
  async cancel(reservation: SpendReservation, call: Call): Promise<void> {
    await this.apply(
      heldOf(reservation).map(({ kind, holdId, at }) => voidOf(kind, holdId, at)),
      call,
    );
  }

  /**
   * Completes a reservation for a write that was done, and cancels one for a write that was not, which cannot be done
   * any more then. Throws UNAVAILABLE: it is not known yet, and found out later (`startResolvingWrites`).
   */
  async resolve(request: CompleteSpendRequest, call: Call): Promise<void> {
    const reservation = request.reservation!;
    const { committed } = await this.options.data().closeWrite({ ticketId: reservation.writeTicketId ?? '' }, call);
    if (committed) await this.complete(request, call);
    else await this.cancel(reservation, call);
  }

  private holdsOf(request: ReserveSpendRequest, legs: Legs, hasAllowance: boolean): HoldCommand[] {
    const { payerAppId, targetAppId, keyId, paymentId, lastsMs, writeTicketId } = request;
    const heldMs = Math.max(this.options.AGENT_RESERVATION_MS, Math.min(lastsMs, lastsMsMax));
    const dueMs = this.options.now().getTime() + heldMs;
    const expiresAtMs = String(writeTicketId === undefined ? dueMs : writeHoldExpiry(dueMs));
    const ref = writeTicketId === undefined ? paymentId : refOfWrite(writeTicketId);
    const time = new Date(Number(request.atMs));
    const accounts: Array<[kind: Kind, debit: string, credit: string]> = [
      ['spend', `app:${payerAppId}`, `app:${targetAppId}`],
      ['spend_share', `app:${payerAppId}`, 'platform:fees'],
      ['allowance_spend', allowanceOf(keyId), issued],
    ];
    return accounts
      .filter(([kind]) => legs[kind] > 0n && (hasAllowance || kind !== 'allowance_spend'))
      .map(([kind, debitAccount, creditAccount]) => ({
        id: transferId(time, kind, paymentId),
        kind,
        action: 'hold' as const,
        hold: {
          debitAccount,
          creditAccount,
          amount: legs[kind].toString(),
          ref,
          atMost: false,
          expiresAtMs,
        },
      }));
  }

  /** The allowance of a key is credited once, by the first payment that comes to this process. */
  private async openAllowance(keyId: string, allowance: bigint, call: Call): Promise<void> {
    if (allowance === 0n) throw refused('allowance_spent');
    // Others share it, so it does not end when the client that caused it disconnects.
    const shared = { ...call, signal: neverAborted };
    await this.allowances.get(keyId, () => this.creditAllowance(keyId, allowance, shared));
  }

  private async creditAllowance(keyId: string, allowance: bigint, call: Call): Promise<true> {
    const credit: Command = {
      // The time of the cause is not known here, and must be the same each time.
      id: transferId(new Date(0), 'allowance', keyId),
      kind: 'allowance',
      transfer: {
        debitAccount: issued,
        creditAccount: allowanceOf(keyId),
        amount: allowance.toString(),
        ref: keyId,
        atMost: false,
        expiresAtMs: '0',
      },
    };
    const results = await this.apply([credit], call);
    if (!results.every(isApplied)) throw unavailable('The allowance of the key could not be opened');
    return true;
  }

  /** The reason that comes before a target that is not allowed. */
  private async assertAllowance(keyId: string, limits: SpendLimits, amount: bigint, call: Call): Promise<void> {
    if (limits.spendAllowance === undefined) return;
    const { balances } = await this.options.ledger().getBalances({ accounts: [allowanceOf(keyId)] }, call);
    const [account] = balances;
    if (!account) return;
    const { creditsPosted, debitsPosted, debitsPending } = account;
    if (BigInt(creditsPosted) - BigInt(debitsPosted) - BigInt(debitsPending) < amount) throw refused('allowance_spent');
  }

  private async apply(commands: Command[], call: Call): Promise<CommandResult[]> {
    return (await this.options.ledger().apply({ groups: [{ commands }] }, call)).groups[0]!.results;
  }
}

type HoldCommand = Command & { kind: Kind };

/** The amounts that move, by kind. */
type Legs = Readonly<Record<Kind, bigint>>;

const sumOf = (amounts: readonly bigint[]): bigint => amounts.reduce((sum, amount) => sum + amount, 0n);

/** The legs of payments together: the shares of each are rounded by themselves. */
function legsOf(amounts: readonly bigint[], appSharePpm: number): Legs {
  const shares = amounts.map((amount) => divideShares(amount, appSharePpm));
  return {
    spend: sumOf(shares.map(({ app }) => app)),
    spend_share: sumOf(shares.map(({ platform }) => platform)),
    allowance_spend: sumOf(amounts),
  };
}

function amountsOf({ amountsUtia }: { amountsUtia: readonly string[] }): bigint[] {
  if (amountsUtia.length < 1 || amountsUtia.length > paymentsMax)
    throw invalid(`1 to ${paymentsMax} payments are expected`);
  return amountsUtia.map(parseUtia);
}

const issued = 'allowance:issued';
const allowanceOf = (keyId: string): string => `allowance:${keyId}`;

const isApplied = ({ outcome }: CommandResult): boolean => outcome !== 'refused';

/** More than the account has, or than any account can have. */
const tooMuch: ReadonlySet<string> = new Set(['INSUFFICIENT_FUNDS', 'AMOUNT_OUT_OF_RANGE']);

function assertHeld(holds: readonly HoldCommand[], results: readonly CommandResult[]): void {
  if (results.every(isApplied)) return;
  // The call is repeated: the holds of its first time, which are there all or not at all, expire at another moment.
  if (results[0]!.reason === 'TRANSFER_ID_TAKEN') return;
  const isWithout = (kind: Kind) =>
    results.some(({ reason }, index) => tooMuch.has(reason) && holds[index]!.kind === kind);
  if (isWithout('allowance_spend')) throw refused('allowance_spent');
  if (isWithout('spend') || isWithout('spend_share')) throw refused('insufficient_funds');
  throw unavailable('The payment could not be reserved');
}

function heldOf({ paymentId, atMs, kinds: held }: SpendReservation): Array<{ kind: Kind; holdId: string; at: Date }> {
  const time = new Date(Number(atMs));
  return held.filter(isKind).map((kind) => ({ kind, at: time, holdId: transferId(time, kind, paymentId) }));
}
