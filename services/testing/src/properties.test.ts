import * as fc from 'fast-check';
import { checkProperty, checkUntil } from './properties';
import { partsOf } from './seeds';

test('a property is checked for all cases of a proof', async () => {
  let checked = 0;
  await checkProperty(
    'a proof',
    10,
    fc.property(fc.nat(), () => void (checked += 1)),
  );
  expect(checked).toBe(10);
});

test('a failure names the seed of its part', async () => {
  const [fixed] = partsOf('a proof', 10);
  const failing = checkProperty(
    'a proof',
    10,
    fc.asyncProperty(fc.nat(), () => Promise.resolve(false)),
  );
  await expect(failing).rejects.toThrow(`seed: ${fixed!.seed}`);
});

test('a property is checked until there is enough, or no more is allowed', async () => {
  let checked = 0;
  const property = fc.property(fc.nat(), () => void (checked += 1));
  await checkUntil('a proof', 1_000, property, () => checked > 60);
  expect(checked).toBe(75);
  await checkUntil('a proof', 100, property, () => false);
  expect(checked).toBe(175);
});
