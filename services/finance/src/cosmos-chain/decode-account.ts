import { BaseAccount } from 'cosmjs-types/cosmos/auth/v1beta1/auth';
import {
  BaseVestingAccount,
  ContinuousVestingAccount,
  DelayedVestingAccount,
  PeriodicVestingAccount,
  PermanentLockedAccount,
} from 'cosmjs-types/cosmos/vesting/v1beta1/vesting';
import type { Any } from 'cosmjs-types/google/protobuf/any';
import { NodeFailure } from '@granary/shared/http/json-rpc';

/** Anybody can make the account of an address that has none yet, also as one of these. */
const vesting = [ContinuousVestingAccount, DelayedVestingAccount, PeriodicVestingAccount, PermanentLockedAccount];

/** The number and sequence of an account. Throws a NodeFailure for a kind of account that has no key. */
export function decodeAccount(account: Any | undefined): BaseAccount {
  const base = account && decode(account);
  if (!base) throw new NodeFailure(`An account of the kind ${account?.typeUrl ?? 'none'} cannot be read`);
  return base;
}

function decode({ typeUrl, value }: Any): BaseAccount | undefined {
  if (typeUrl === BaseAccount.typeUrl) return BaseAccount.decode(value);
  if (typeUrl === BaseVestingAccount.typeUrl) return BaseVestingAccount.decode(value).baseAccount;
  const kind = vesting.find((each) => each.typeUrl === typeUrl);
  return kind?.decode(value).baseVestingAccount?.baseAccount;
}
