import { seededRandom } from '@granary/testing/random';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { KeyedBudget, type BudgetLease } from './keyed-budget';

function budgetOf(total: number, app: number, address: number, evictAfterIdleMs = 0) {
  let nowMs = 0;
  const evicted: string[] = [];
  const budget = new KeyedBudget({ total, perKey: { app, address }, evictAfterIdleMs }, () => nowMs);
  return {
    budget,
    evicted,
    pass: (ms: number) => (nowMs += ms),
    open: (name: string, keys: { app?: string; address?: string }, amount = 0): BudgetLease => {
      const lease = budget.open(keys, () => evicted.push(name));
      if (amount > 0) expect(lease.tryTake(amount)).toBe(true);
      return lease;
    },
  };
}

test('a key never holds more than its maximum, and its own oldest lease gives way', () => {
  const { budget, evicted, open } = budgetOf(100, 10, 100);
  open('first', { app: 'a' }, 4);
  open('second', { app: 'a' }, 4);
  open('other', { app: 'b' }, 10);
  open('third', { app: 'a' }, 4);
  expect(evicted).toEqual(['first']);
  expect([budget.usedBy('app', 'a'), budget.usedBy('app', 'b')]).toEqual([8, 10]);
  expect(budget.counts()).toEqual({ used: 18, total: 100, evicted: 1 });
});

test('where the total is used up, the key that holds most gives way, in whichever dimension it is', () => {
  const { budget, evicted, open } = budgetOf(100, 100, 100);
  open('small', { app: 'small', address: '1' }, 10);
  for (let at = 0; at < 8; at += 1) open(`large ${at}`, { app: 'large', address: `2.${at}` }, 10);
  open('newcomer', { app: 'new', address: '3' }, 20);
  expect(evicted).toEqual(['large 0']);
  open('other', { address: '4' }, 30);
  expect(evicted).toEqual(['large 0', 'large 1', 'large 2', 'large 3']);
  expect(budget.counts().used).toBe(100);
});

test('the lease that made no progress for the longest time gives way first', () => {
  const { evicted, open } = budgetOf(3, 3, 3);
  const leases = ['a', 'b', 'c'].map((name) => open(name, { app: 'app', address: '1' }, 1));
  leases[0]!.touch();
  leases[1]!.touch();
  open('d', { app: 'app', address: '1' }, 1);
  open('e', { app: 'app', address: '1' }, 1);
  expect(evicted).toEqual(['c', 'a']);
});

test('a lease never evicts itself, and is refused what cannot be had without evicting anybody in vain', () => {
  const { budget, evicted, open } = budgetOf(100, 50, 100);
  const other = open('other', { app: 'a' }, 20);
  const growing = open('growing', { app: 'a' }, 30);
  expect(growing.tryTake(21)).toBe(false);
  expect(evicted).toEqual([]);
  expect(growing.tryTake(20)).toBe(true);
  expect(evicted).toEqual(['other']);
  expect([other.isOpen, other.tryTake(1)]).toEqual([false, false]);
  expect(budget.counts().used).toBe(50);
});

test('pinned leases, and leases that cannot be evicted, stay', () => {
  const { budget, evicted, open } = budgetOf(30, 30, 30);
  open('pinned', { app: 'a' }, 10).pin();
  const fixed = budget.open({ app: 'a' });
  expect(fixed.tryTake(10)).toBe(true);
  open('evictable', { app: 'a' }, 10);
  expect(budget.open({ app: 'b' }).tryTake(11)).toBe(false);
  expect(budget.open({ app: 'b' }).tryTake(10)).toBe(true);
  expect(evicted).toEqual(['evictable']);
});

test('only leases that were not touched for a while are evicted, where that is asked for', () => {
  const { budget, evicted, pass, open } = budgetOf(20, 20, 20, 1_000);
  const stalled = open('stalled', { app: 'a' }, 10);
  const moving = open('moving', { app: 'a' }, 10);
  const newcomer = budget.open({ app: 'b' });
  expect(newcomer.tryTake(10)).toBe(false);
  pass(1_000);
  moving.touch();
  expect(newcomer.tryTake(10)).toBe(true);
  expect(newcomer.tryTake(1)).toBe(false);
  expect(evicted).toEqual(['stalled']);
  expect([stalled.isOpen, moving.isOpen]).toEqual([false, true]);
});

test('a request that cannot be met evicts nothing, whichever of its limits is the one that cannot', () => {
  // The key has a lease to give, the address has none.
  const first = budgetOf(100, 10, 10);
  first.open('other app', { address: '1' }, 5).pin();
  first.open('same app', { app: 'a' }, 10);
  expect(first.budget.open({ app: 'a', address: '1' }).tryTake(6)).toBe(false);
  // The app has a lease to give, the total has not enough.
  const second = budgetOf(20, 10, 20);
  second.open('pinned', { app: 'b' }, 10).pin();
  second.open('same app', { app: 'a' }, 10);
  expect(second.budget.open({ app: 'a' }).tryTake(6, 5)).toBe(false);
  // One lease is idle, but the two that are needed are not.
  const third = budgetOf(20, 20, 20, 1_000);
  third.open('idle', { app: 'a' }, 5);
  third.pass(1_000);
  third.open('moving', { app: 'b' }, 15);
  expect(third.budget.open({ app: 'c' }).tryTake(6)).toBe(false);
  for (const { evicted, budget } of [first, second, third]) {
    expect(evicted).toEqual([]);
    expect(budget.counts().evicted).toBe(0);
  }
  expect(third.budget.open({ app: 'c' }).tryTake(5)).toBe(true);
  expect(third.evicted).toEqual(['idle']);
});

test('a part of the total can be kept free for others', () => {
  const { budget } = budgetOf(100, 100, 100);
  const large = budget.open({ app: 'a' });
  expect(large.tryTake(81, 20)).toBe(false);
  expect(large.tryTake(80, 20)).toBe(true);
  expect(budget.open({ app: 'b' }).tryTake(20)).toBe(true);
});

test('what is released or given back can be taken by others, once only, and nothing is kept of keys without leases', () => {
  const { budget, evicted, open } = budgetOf(10, 10, 10);
  const lease = open('lease', { app: 'a', address: '1' }, 10);
  lease.give(4);
  const other = budget.open({ app: 'a', address: '1' });
  expect(other.tryTake(4)).toBe(true);
  lease.release();
  lease.release();
  lease.give(6);
  expect(budget.usedBy('address', '1')).toBe(4);
  other.release();
  expect(budget.usedBy('app', 'a')).toBe(0);
  expect(budget.counts()).toEqual({ used: 0, total: 10, evicted: 0 });
  expect(evicted).toEqual([]);
  expect(JSON.stringify([...(budget as unknown as { dimensions: unknown[] }).dimensions])).not.toContain('"a"');
});

const histories = partsOf('shared/keyed-budget', size({ run: 10_000, long: 50_000 }));
test.each(histories)(
  'a random history keeps every limit, evicts nothing for a refused request, and ends with nothing held (seed $seed)',
  ({ seed, cases }) => {
    const next = seededRandom(seed);
    const random = (below: number) => Math.floor(next() * below);
    const { budget } = budgetOf(1_000, 300, 500);
    const leases: BudgetLease[] = [];
    const broken: string[] = [];
    for (let step = 0; step < cases; step += 1) {
      const lease = leases[random(leases.length + 1)];
      const action = random(6);
      if (!lease || action === 0) {
        const keys = { app: `app ${random(9)}`, address: `address ${random(7)}` };
        leases.push(budget.open(keys, random(4) === 0 ? undefined : () => {}));
      } else if (action <= 3) {
        const before = budget.counts();
        const isTaken = lease.tryTake(1 + random(120), random(2) * 50);
        if (!isTaken && budget.counts().evicted > before.evicted) broken.push(`refused, and evicted, in step ${step}`);
      } else if (action === 4 && lease.amount > 0) lease.give(1 + random(lease.amount));
      else if (random(3) === 0) lease.pin();
      else lease.release();
      for (let of = 0; of < 9; of += 1) {
        if (budget.usedBy('app', `app ${of}`) > 300) broken.push(`app ${of} in step ${step}`);
        if (budget.usedBy('address', `address ${of}`) > 500) broken.push(`address ${of} in step ${step}`);
      }
      const { used } = budget.counts();
      if (used < 0 || used > 1_000) broken.push(`total in step ${step}`);
      if (leases.length > 60) leases.splice(0, 30).forEach((old) => old.release());
    }
    for (const lease of leases) lease.release();
    expect(broken).toEqual([]);
    expect(budget.counts().used).toBe(0);
  },
);
