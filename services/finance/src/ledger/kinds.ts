import type { Command } from './commands';
import type { NewAccount } from './accounts';

/** Which service may ask for a kind of transfer, and the prefixes of the accounts that it is from and to. */
interface TransferKind {
  by: 'finance' | 'payments';
  debit: string;
  credit: string;
}

/** Every kind of transfer there is. */
export const transferKinds: Readonly<Record<string, TransferKind>> = {
  /** Money that arrived on the chain at the address of a wallet. */
  deposit: { by: 'finance', debit: 'chain:', credit: 'app:' },
  payout: { by: 'finance', debit: 'app:', credit: 'chain:' },
  /** The fee that the chain took for a transaction of ours. */
  chain_fee: { by: 'finance', debit: 'platform:cost', credit: 'chain:' },
  retention: { by: 'finance', debit: 'app:', credit: 'platform:fees' },
  /** One application pays another, and the share of the platform of it. */
  spend: { by: 'payments', debit: 'app:', credit: 'app:' },
  spend_share: { by: 'payments', debit: 'app:', credit: 'platform:fees' },
  /** Income in another asset at the rate of its quote, and the share of the platform of it. */
  income: { by: 'payments', debit: 'rates', credit: 'app:' },
  income_share: { by: 'payments', debit: 'rates', credit: 'platform:fees' },
  /** An amount that was collected in an asset, in its own units. */
  asset: { by: 'payments', debit: 'world:', credit: 'asset:' },
  /** The lifetime budget of an agent key, and what it spends of it. */
  allowance: { by: 'payments', debit: 'allowance:issued', credit: 'allowance:' },
  allowance_spend: { by: 'payments', debit: 'allowance:', credit: 'allowance:issued' },
};

/** The kinds of transfer that a service may ask for. */
export const kindsOf = (by: TransferKind['by']): string[] =>
  Object.keys(transferKinds).filter((kind) => transferKinds[kind]!.by === by);

/** The account of an application's wallet. */
export const walletAccount = (appId: string): string => `app:${appId}`;

/** The application whose wallet has the account, if it is one of a wallet. */
export const walletApp = (account: string): string | undefined => /^app:([A-Za-z0-9_-]{1,63})$/.exec(account)?.[1];

/**
 * How an account is opened, by its name. Undefined for `app:`, which is opened with its wallet, and for a name that no
 * account has.
 */
export function accountByName(id: string): NewAccount | undefined {
  const prefix = /^[a-z]+:?/.exec(id)?.[0];
  const rest = id.slice(id.indexOf(':') + 1);
  switch (prefix) {
    case 'chain:':
      return { id, unit: 'utia', mayOverdraw: true };
    case 'platform:':
      if (id === 'platform:fees') return { id, unit: 'utia', mayOverdraw: false };
      return id === 'platform:cost' ? { id, unit: 'utia', mayOverdraw: true } : undefined;
    case 'rates':
      return id === 'rates' ? { id, unit: 'utia', mayOverdraw: true } : undefined;
    case 'allowance:':
      return { id, unit: 'allowance', mayOverdraw: rest === 'issued' };
    case 'world:':
    case 'asset:':
      return { id, unit: rest, mayOverdraw: prefix === 'world:' };
    default:
      return undefined;
  }
}

/** Whether that service may ask for the command: its kind, and the accounts that its kind joins. */
export function mayAsk(by: 'finance' | 'payments', command: Command): boolean {
  const kind = Object.hasOwn(transferKinds, command.kind) ? transferKinds[command.kind]! : undefined;
  if (kind?.by !== by) return false;
  if (command.type === 'post' || command.type === 'void') return true;
  return command.debitAccount.startsWith(kind.debit) && command.creditAccount.startsWith(kind.credit);
}
