import { randomFillSync } from 'node:crypto';

const pool = Buffer.alloc(8192);
let used = pool.length;

/** Random bytes from a pool: one system call for hundreds of ids. The slice is only valid until the next turn. */
export function randomSlice(length: number): Buffer {
  const start = takeRandom(length);
  return pool.subarray(start, start + length);
}

/** Returns random bytes as hexadecimal text, without a slice, which would double the price of a short id. */
export function randomHex(length: number): string {
  const start = takeRandom(length);
  return pool.toString('hex', start, start + length);
}

/** Takes so many fresh random bytes from the pool; returns their offset in it. */
function takeRandom(length: number): number {
  if (used + length > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += length;
  return used - length;
}
