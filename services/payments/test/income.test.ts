import { randomUUID } from 'node:crypto';
import type { ApplyRequest } from '@granary/shared/gen/granary/finance/v1/ApplyRequest';
import { createLogger } from '@granary/shared/logger';
import { maxUtia } from '@granary/shared/money/amounts';
import type { Claim } from '../src/settlement/claim';
import type { Claims } from '../src/settlement/claims';
import { creditIncome } from '../src/settlement/income';

const log = createLogger('income-test', 'silent');

const claimOf = (changes: Partial<Claim>): Claim =>
  ({
    id: randomUUID(),
    appId: 'films',
    amountUtia: 1_001n,
    appSharePpm: 800_000,
    createdAt: new Date(),
    network: 'eip155:1',
    asset: '0x1',
    amount: 5n,
    ...changes,
  }) as Claim;

/** Settled claims, and a ledger that refuses what `refusalOf` says, each group as a whole. */
function setUp(claims: readonly Claim[], refusalOf: (account: string, amount: bigint) => string | undefined) {
  const credited: string[] = [];
  const moved: string[][] = [];
  const ledger = {
    apply: ({ groups }: Pick<ApplyRequest, 'groups'>) =>
      Promise.resolve({
        groups: groups.map(({ commands }) => {
          const legs = commands.map(({ transfer }) => transfer!);
          const reasons = legs.map(({ debitAccount, amount }) => refusalOf(debitAccount, BigInt(amount)));
          const isRefused = reasons.some((reason) => reason !== undefined);
          if (!isRefused) moved.push(legs.map(({ creditAccount, amount }) => `${creditAccount} ${amount}`));
          const outcome = isRefused ? ('refused' as const) : ('created' as const);
          return {
            results: reasons.map((reason) => ({
              outcome,
              reason: isRefused ? (reason ?? 'LINKED_FAILED') : '',
              amount: '0',
            })),
          };
        }),
      }),
  };
  const stored = {
    uncredited: () => Promise.resolve(claims.filter(({ id }) => !credited.includes(id))),
    credited: (ids: readonly string[]) => Promise.resolve(void credited.push(...ids)),
  } as unknown as Claims;
  return { credited, moved, credit: () => creditIncome({ claims: stored, ledger: () => ledger, log }) };
}

test('a payment in more units of a token than an account can hold is credited in utia', async () => {
  const usual = claimOf({});
  const large = claimOf({ amount: 4n * 10n ** 19n });
  const { credited, moved, credit } = setUp([large, usual], (_, amount) =>
    amount > maxUtia ? 'AMOUNT_OUT_OF_RANGE' : undefined,
  );
  expect(await credit()).toBe(2);
  expect(credited).toEqual([large.id, usual.id]);
  expect(moved).toEqual([
    ['app:films 800', 'platform:fees 201', 'asset:eip155:1/0x1 5'],
    ['app:films 800', 'platform:fees 201'],
  ]);
  expect(await credit()).toBe(0);
});

test('play money is left out where wallets are real, and what is refused otherwise keeps no other payment waiting', async () => {
  const [play, wrong, usual] = [claimOf({ asset: '0xplay' }), claimOf({ asset: '0xwrong' }), claimOf({})];
  const { credited, moved, credit } = setUp([play, wrong, usual], (account) => {
    if (account.endsWith('0xplay')) return 'PLAY_MONEY';
    return account.endsWith('0xwrong') ? 'UNIT_MISMATCH' : undefined;
  });
  await expect(credit()).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringContaining('UNIT_MISMATCH') as string,
  });
  expect(credited).toEqual([play.id, usual.id]);
  expect(moved).toHaveLength(1);
});
