import { WriteMemory } from './write-memory';

test('a write is refused while those that wait or are parsed have used the buffer up', async () => {
  const memory = new WriteMemory(1_000);
  memory.take(600);
  memory.refuseWhenFull();
  await memory.during(400, () => {
    expect(() => memory.refuseWhenFull()).toThrow('Too many writes are waiting');
    return Promise.resolve();
  });
  memory.refuseWhenFull();
  memory.take(400);
  await expect(memory.during(1, () => Promise.resolve())).rejects.toMatchObject({ code: 'UNAVAILABLE' });
});
