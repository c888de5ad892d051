import { Gate } from './concurrency-limiter';

const overloaded = { code: 'UNAVAILABLE', reason: 'OVERLOADED' };

test('who finds the gate and the line full is refused at once; who waits enters in order', async () => {
  const gate = new Gate(2, 60_000);
  await gate.enter();
  await gate.enter();
  const entered: string[] = [];
  const third = gate.enter().then(() => entered.push('third'));
  const fourth = gate.enter().then(() => entered.push('fourth'));
  await expect(gate.enter()).rejects.toMatchObject(overloaded);
  expect(entered).toEqual([]);
  gate.leave();
  await third;
  expect(entered).toEqual(['third']);
  gate.leave();
  await fourth;
  expect(entered).toEqual(['third', 'fourth']);
});

test('who waits too long is refused, and his place in the line is free again', async () => {
  const gate = new Gate(1, 1);
  await gate.enter();
  await expect(gate.enter()).rejects.toMatchObject(overloaded);
  const next = gate.enter();
  gate.leave();
  await next;
  gate.leave();
  await gate.enter();
});
