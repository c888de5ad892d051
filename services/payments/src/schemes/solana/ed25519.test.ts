import { createPublicKey, verify } from 'node:crypto';
import { ed25519, ED25519_TORSION_SUBGROUP } from '@noble/curves/ed25519';
import { address, getAddressEncoder, getProgramDerivedAddress } from '@solana/kit';
import * as fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { runToCompletion } from '@granary/shared/concurrency/time-slicing';
import { readSolanaAddress, solanaAddressOf } from './address';
import { associatedTokenAccount } from './associated-token';
import { isEd25519Signature, isOnCurve } from './ed25519';
import { programs, tokenPrograms } from './programs';

const bytes32 = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes));

function isPoint(bytes: Buffer): boolean {
  try {
    ed25519.ExtendedPoint.fromHex(bytes, true);
    return true;
  } catch {
    return false;
  }
}

test('32 bytes are a point of the curve where another library finds one', async () => {
  await checkProperty(
    'payments/ed25519 points',
    200,
    fc.property(bytes32, (bytes) => expect(isOnCurve(bytes)).toBe(isPoint(bytes))),
  );
});

test('the token account of an owner is the one that the official library derives', async () => {
  const encode = (hex: string) => getAddressEncoder().encode(address(solanaAddressOf(hex)));
  const key = bytes32.map((bytes) => bytes.toString('hex'));
  await checkProperty(
    'payments/ed25519 token accounts',
    100,
    fc.asyncProperty(key, key, fc.constantFrom(...Object.values(tokenPrograms)), async (owner, mint, program) => {
      const [account] = await getProgramDerivedAddress({
        programAddress: address(solanaAddressOf(programs.associatedToken)),
        seeds: [owner, program, mint].map(encode),
      });
      expect(solanaAddressOf(runToCompletion(associatedTokenAccount(owner, mint, program)))).toBe(account);
    }),
  );
});

test('a signature for which nobody needs a key is none, though node:crypto takes it', () => {
  const message = Buffer.from('any message');
  const order = ed25519.CURVE.n;
  const scalar = 12_345n;
  const half = Buffer.from(scalar.toString(16).padStart(64, '0'), 'hex').reverse();
  const neutral = Buffer.from(ED25519_TORSION_SUBGROUP[0]!, 'hex');
  const signature = Buffer.concat([ed25519.ExtendedPoint.BASE.multiply(scalar).toRawBytes(), half]);
  const der = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), neutral]);
  expect(verify(null, message, createPublicKey({ key: der, format: 'der', type: 'spki' }), signature)).toBe(true);
  expect(isEd25519Signature(neutral, message, signature)).toBe(false);
  const secret = Buffer.alloc(32, 9);
  const [key, own] = [Buffer.from(ed25519.getPublicKey(secret)), Buffer.from(ed25519.sign(message, secret))];
  expect(isEd25519Signature(key, message, own)).toBe(true);
  for (const point of ED25519_TORSION_SUBGROUP.map((hex) => Buffer.from(hex, 'hex'))) {
    expect(isEd25519Signature(point, message, signature)).toBe(false);
    expect(isEd25519Signature(key, message, Buffer.concat([point, own.subarray(32)]))).toBe(false);
  }
  // The second form of a signature: its second half beyond the order of the group.
  const s = BigInt(`0x${Buffer.from(own.subarray(32)).reverse().toString('hex')}`) + order;
  const other = Buffer.from(s.toString(16).padStart(64, '0'), 'hex').reverse();
  expect(isEd25519Signature(key, message, Buffer.concat([own.subarray(0, 32), other]))).toBe(false);
});

test('an address has one text, of 32 bytes', async () => {
  await checkProperty(
    'payments/ed25519 addresses',
    100,
    fc.property(bytes32, (bytes) => {
      const hex = bytes.toString('hex');
      const text = solanaAddressOf(hex);
      expect(readSolanaAddress(text)).toBe(hex);
      expect(readSolanaAddress(`1${text}`)).toBeUndefined();
      expect(readSolanaAddress(text.slice(1))).not.toBe(hex);
    }),
  );
  for (const text of ['', '0'.repeat(44), 'l'.repeat(44), 'z'.repeat(44), '1'.repeat(31), '1'.repeat(33)]) {
    expect(readSolanaAddress(text)).toBeUndefined();
  }
  expect(readSolanaAddress('1'.repeat(32))).toBe('00'.repeat(32));
});
