/** Random numbers from a seed: whole ones below `limit`. */
export type Random = (limit: number) => number;

export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return (limit) => {
    // Mulberry32.
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return Math.floor((((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32) * limit);
  };
}
