import { readSolanaAddress } from './address';
import type { SolanaAsset } from './assets';

// The addresses of programs are the same on each network.
const idOf = (address: string): string => readSolanaAddress(address)!;

/** The addresses of programs, in hexadecimal digits. */
export const programs = {
  computeBudget: idOf('ComputeBudget111111111111111111111111111111'),
  memo: idOf('MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr'),
  /** Assertions that wallets add to protect their users. */
  lighthouse: idOf('L2TExMFKdjpN9kozasaurPirfHy9P8sbXoAN1qA3S95'),
  associatedToken: idOf('ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL'),
};

export const tokenPrograms: Readonly<Record<SolanaAsset['program'], string>> = {
  token: idOf('TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA'),
  'token-2022': idOf('TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb'),
};
