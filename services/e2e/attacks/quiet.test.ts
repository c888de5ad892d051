import { openArena, expectUnharmed, type Arena } from './arena';

describe('the measurement itself', () => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena();
  });
  afterAll(() => arena.close());

  test('an app without an attacker beside it is unharmed', async () => {
    const nothing = (signal: AbortSignal) =>
      new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    const outcome = await expectUnharmed(arena, { run: nothing, memoryBytesMax: 100 * 1024 ** 2 });
    expect(outcome.shareServed).toBe(1);
  });
});
