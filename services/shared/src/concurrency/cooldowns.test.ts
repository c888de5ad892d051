import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { Cooldowns } from './cooldowns';

const same = (name: string) => name;

test('endpoints that failed lately come last, the others keep their order', () => {
  const cooldowns = new Cooldowns(60_000);
  expect(cooldowns.order(['a', 'b', 'c'], same)).toEqual(['a', 'b', 'c']);
  cooldowns.begin('a');
  expect(cooldowns.has('a')).toBe(true);
  expect(cooldowns.order(['a', 'b', 'c'], same)).toEqual(['b', 'c', 'a']);
});

test('after its cooldown an endpoint is preferred as before', async () => {
  const cooldowns = new Cooldowns(20);
  cooldowns.begin('a');
  await sleep(5);
  await eventually(() => Promise.resolve(!cooldowns.has('a')));
  expect(cooldowns.order(['a', 'b'], same)).toEqual(['a', 'b']);
});
