import { BaseAccount, ModuleAccount } from 'cosmjs-types/cosmos/auth/v1beta1/auth';
import { BaseVestingAccount, PeriodicVestingAccount } from 'cosmjs-types/cosmos/vesting/v1beta1/vesting';
import { decodeAccount } from './decode-account';

const baseAccount = BaseAccount.fromPartial({ address: 'a', accountNumber: 7n, sequence: 9n });

test('an account is read, also one of an address that somebody else has made a vesting account', () => {
  const base = { typeUrl: BaseAccount.typeUrl, value: BaseAccount.encode(baseAccount).finish() };
  const vesting = BaseVestingAccount.fromPartial({ baseAccount });
  const periodic = PeriodicVestingAccount.encode(
    PeriodicVestingAccount.fromPartial({ baseVestingAccount: vesting }),
  ).finish();
  for (const account of [
    base,
    { typeUrl: BaseVestingAccount.typeUrl, value: BaseVestingAccount.encode(vesting).finish() },
    { typeUrl: PeriodicVestingAccount.typeUrl, value: periodic },
  ]) {
    expect(decodeAccount(account)).toMatchObject({ accountNumber: 7n, sequence: 9n });
  }
});

test('an account of another kind is no account that could sign', () => {
  expect(() => decodeAccount({ typeUrl: ModuleAccount.typeUrl, value: new Uint8Array() })).toThrow(/ModuleAccount/);
  expect(() => decodeAccount(undefined)).toThrow(/none/);
});
