import { createHash, createPrivateKey, createPublicKey, sign, type KeyObject } from 'node:crypto';
import { base58 } from '@scure/base';
import { tokenAccountOf as tokenAccountAddressOf } from '@granary/testing/solana-chain';
import { solanaRequirement, solanaTest, tokenProgramAddress } from '@granary/testing/solana-client';

/** A key, the same for the same name. */
export class TestKey {
  readonly secret: KeyObject;
  readonly bytes: Buffer;
  readonly address: string;

  constructor(name: string) {
    const seed = createHash('sha256').update(name).digest();
    const key = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]);
    this.secret = createPrivateKey({ key, format: 'der', type: 'pkcs8' });
    this.bytes = createPublicKey(this.secret).export({ format: 'der', type: 'spki' }).subarray(-32);
    this.address = base58.encode(this.bytes);
  }
}

/** A transaction in its parts, each of which can be wrong. */
export interface Draft {
  /** Undefined: the legacy form. */
  version: number | undefined;
  header: [signers: number, readonlySigners: number, readonlyOthers: number];
  accounts: Buffer[];
  blockhash: Buffer;
  instructions: Array<{ program: number; accounts: number[]; data: Buffer }>;
  /** Counted tables, of version 0. */
  lookups: Buffer;
  feePayerSignature: Buffer;
  signers: TestKey[];
}

export const keys = {
  feePayer: new TestKey('fee payer'),
  otherFeePayer: new TestKey('another fee payer'),
  payer: new TestKey('payer'),
  payTo: new TestKey('pay to'),
  stranger: new TestKey('stranger'),
};

/** The places of accounts in a draft. */
export const at = {
  feePayer: 0,
  payer: 1,
  source: 2,
  destination: 3,
  computeBudget: 4,
  token: 5,
  mint: 6,
  memo: 7,
  lighthouse: 8,
};

export const bytesOf = (text: string): Buffer => Buffer.from(base58.decode(text));

/** The program Token-2022. */
export const successor = 'TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb';

/** The account with the tokens of an owner, as the official library finds it. */
export const tokenAccountOf = async (owner: string, of?: { program?: string; mint?: string }): Promise<Buffer> =>
  bytesOf(await tokenAccountAddressOf(owner, of));

export const draftMemo = 'quote-1';
export const requirement = (extra: object = {}) =>
  solanaRequirement(2, {
    payTo: keys.payTo.address,
    extra: { feePayer: keys.feePayer.address, memo: draftMemo, ...extra },
  });

export const computeLimit = (units: number): Buffer => {
  const data = Buffer.from([2, 0, 0, 0, 0]);
  data.writeUInt32LE(units, 1);
  return data;
};
export const computePrice = (microLamports: bigint): Buffer => numbered(3, microLamports);
export const transferChecked = (amount: bigint, decimals = solanaTest.decimals): Buffer =>
  Buffer.concat([numbered(12, amount), Buffer.from([decimals])]);

function numbered(number: number, value: bigint): Buffer {
  const data = Buffer.alloc(9, number);
  data.writeBigUInt64LE(value, 1);
  return data;
}

/** A payment that meets `requirement()`. */
export async function newDraft(): Promise<Draft> {
  const [source, destination] = await Promise.all([
    tokenAccountOf(keys.payer.address),
    tokenAccountOf(keys.payTo.address),
  ]);
  const others = [
    'ComputeBudget111111111111111111111111111111',
    tokenProgramAddress,
    solanaTest.mint,
    'MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr',
    'L2TExMFKdjpN9kozasaurPirfHy9P8sbXoAN1qA3S95',
  ].map(bytesOf);
  return {
    version: 0,
    header: [2, 1, others.length],
    accounts: [keys.feePayer.bytes, keys.payer.bytes, source, destination, ...others],
    blockhash: Buffer.alloc(32, 7),
    instructions: [
      { program: at.computeBudget, accounts: [], data: computeLimit(20_000) },
      { program: at.computeBudget, accounts: [], data: computePrice(1n) },
      {
        program: at.token,
        accounts: [at.source, at.mint, at.destination, at.payer],
        data: transferChecked(10_000n),
      },
      { program: at.memo, accounts: [], data: Buffer.from(draftMemo) },
    ],
    lookups: Buffer.from([0]),
    feePayerSignature: Buffer.alloc(64),
    signers: [keys.payer],
  };
}

const counted = (items: readonly Buffer[]): Buffer => Buffer.concat([shortLength(items.length), ...items]);

function shortLength(length: number): Buffer {
  return length < 0x80 ? Buffer.from([length]) : Buffer.from([(length & 0x7f) | 0x80, length >> 7]);
}

export function messageOf({ version, header, accounts, blockhash, instructions, lookups }: Draft): Buffer {
  const encoded = instructions.map(({ program, accounts: places, data }) =>
    Buffer.concat([
      Buffer.from([program]),
      shortLength(places.length),
      Buffer.from(places),
      shortLength(data.length),
      data,
    ]),
  );
  return Buffer.concat([
    ...(version === undefined ? [] : [Buffer.from([0x80 | version])]),
    Buffer.from(header),
    counted(accounts),
    blockhash,
    counted(encoded),
    ...(version === undefined ? [] : [lookups]),
  ]);
}

/** The signatures of a draft are those of its parts, as they are. */
export function transactionOf(draft: Draft, message = messageOf(draft)): Buffer {
  const signatures = [draft.feePayerSignature, ...draft.signers.map(({ secret }) => sign(null, message, secret))];
  return Buffer.concat([counted(signatures), message]);
}
