import { newDocumentId, newId, newTicket } from './ids';

test('ids are 96 random bits in hexadecimal, and none comes twice though their bytes come from a pool', () => {
  const ids = new Set<string>();
  for (let round = 0; round < 5_000; round++) {
    const id = newId('x_');
    expect(id).toMatch(/^x_[0-9a-f]{24}$/);
    ids.add(id.slice(2));
    // These take from the same pool.
    ids.add(newTicket('c', 1n)).add(newDocumentId());
  }
  expect(ids.size).toBe(15_000);
});
