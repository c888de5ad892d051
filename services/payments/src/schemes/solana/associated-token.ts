import { createHash } from 'node:crypto';
import type { Task } from '@granary/shared/concurrency/time-slicing';
import { isOnCurve } from './ed25519';
import { programs } from './programs';

const marker = Buffer.from('ProgramDerivedAddress');

/**
 * The account that holds the tokens of a mint for an owner; all in hexadecimal digits, `tokenProgram` is that of the
 * mint. Such an address has no key: it is the first hash, counting down from 255, that is no point of the curve. Each
 * attempt takes about 0.2 ms.
 */
export function* associatedTokenAccount(owner: string, mint: string, tokenProgram: string): Task<string> {
  const seeds = Buffer.from(owner + tokenProgram + mint, 'hex');
  const program = Buffer.from(programs.associatedToken, 'hex');
  for (let bump = 255; bump >= 0; bump -= 1) {
    const hash = createHash('sha256')
      .update(seeds)
      .update(Buffer.from([bump]))
      .update(program)
      .update(marker)
      .digest();
    if (!isOnCurve(hash)) return hash.toString('hex');
    yield;
  }
  throw new Error('No hash is outside of the curve');
}
