import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Task } from '@granary/shared/concurrency/time-slicing';
import { readSolanaAddress, solanaAddressOf } from './address';
import { solanaAssetKeyOf, type SolanaAsset } from './assets';
import { associatedTokenAccount } from './associated-token';
import { isEd25519Signature } from './ed25519';
import type { ExactPayment, Requirement } from '../../verify/envelope';
import type { ExactVerifier } from '../../verify/exact-verifier';
import type { Members } from '../../verify/members';
import { Refusal } from '../../verify/refusal';
import { tokenPrograms } from './programs';
import { readSolanaTransaction, transactionBytesMax, type SolanaTransaction } from './transaction';
import { readSolanaTransfer, type SolanaTransfer } from './transfer';
import type { VerifiedPayment } from '../../verify/verified-payment';

export interface SolanaSettings {
  assets: readonly SolanaAsset[];
  /** Addresses whose keys sign as payers of the fee when a payment is settled. Without any, nothing is verified. */
  feePayers: readonly string[];
}

/** A transaction that only lacks the signature of the payer of its fee, in texts. */
export interface SolanaProof {
  network: string;
  feePayer: string;
  /** The transaction in base64; its first signature is empty. */
  transaction: string;
  /** SHA-256 of what is signed, in hexadecimal digits. It is the same whatever the first signature will be. */
  messageHash: string;
}

/** Version 1 has one place fewer for instructions that wallets add. */
const instructionsMax = { 1: 6, 2: 7 } as const;
/**
 * A transaction can be included within 150 blocks of the one that it names, each of which takes 0.4 seconds or a little
 * more.
 */
export const lifetimeSeconds = 150n;
const tokenAccountsMax = 1_000;
const encodedLengthMax = Math.ceil(transactionBytesMax / 3) * 4;
const signatureEmpty = Buffer.alloc(64);

/**
 * Verifies payments by transactions with one transfer of a token (TransferChecked), of which the payer of the fee has
 * not signed yet, without the chain.
 */
export class SolanaExact implements ExactVerifier {
  private readonly networksOfAssets: ReadonlySet<string>;
  private readonly assets: ReadonlyMap<string, AcceptedAsset>;
  /** The addresses that pay fees in hexadecimal digits, by their form in base58. */
  private readonly feePayers: ReadonlyMap<string, string>;
  /** The accounts of recipients, which take longer to find than the rest takes. */
  private readonly tokenAccounts = new LRUCache<string, string>({ max: tokenAccountsMax });

  constructor(private readonly settings: SolanaSettings) {
    const assets = settings.feePayers.length === 0 ? [] : settings.assets;
    this.assets = new Map(assets.map((asset) => [solanaAssetKeyOf(asset), acceptedAsset(asset)]));
    this.feePayers = new Map(settings.feePayers.map((address) => [address, readSolanaAddress(address)!]));
    this.networksOfAssets = new Set(assets.map(({ network }) => network));
  }

  networks(): Iterable<string> {
    return this.networksOfAssets;
  }

  verifies(network: string): boolean {
    return this.networksOfAssets.has(network);
  }

  get extra(): { feePayer: string } {
    return { feePayer: this.settings.feePayers[0]! };
  }

  get signers(): ExactVerifier['signers'] {
    return this.networksOfAssets.size === 0 ? {} : { 'solana:*': this.settings.feePayers };
  }

  *verify({ version, requirement, payload }: ExactPayment, nowSeconds: bigint): Task<VerifiedPayment> {
    const asset = this.assets.get(`${requirement.network}/${requirement.asset}`);
    if (!asset) throw new Refusal('invalid_payment_requirements', 'The asset is not accepted on the network');
    const payTo = readSolanaAddress(requirement.payTo);
    if (payTo === undefined) throw new Refusal('invalid_payment_requirements', 'payTo must be an address');
    const feePayer = this.feePayerOf(requirement);
    const encoded = payload.text('transaction');
    const transaction = readSolanaTransaction(readBase64(payload, encoded));
    if (transaction.accounts[0] !== this.feePayers.get(feePayer)) {
      throw new Refusal('invalid_exact_svm_fee_payer_mismatch', 'The payer of the fee must be extra.feePayer');
    }
    const transfer = readSolanaTransfer(transaction, instructionsMax[version]);
    const payer = solanaAddressOf(transfer.authority);
    try {
      checkTerms(transfer, asset, requirement, payTo);
      this.checkIsNotOurs(transaction);
      yield;
      checkSignatures(transaction);
      yield;
      yield* this.checkRecipient(transfer, payTo);
    } catch (error) {
      if (error instanceof Refusal) error.payer = payer;
      throw error;
    }
    const messageHash = createHash('sha256').update(transaction.message).digest('hex');
    const proof: SolanaProof = { network: asset.network, feePayer, transaction: encoded, messageHash };
    const validUntilSeconds = Number(nowSeconds + lifetimeSeconds);
    return { payer, scope: asset.network, key: messageHash, validUntilSeconds, proof };
  }

  memoOf(_network: string, payload: Members): string | undefined {
    try {
      const transaction = readSolanaTransaction(readBase64(payload, payload.text('transaction')));
      const [memo, ...others] = readSolanaTransfer(transaction, instructionsMax[1]).memos;
      return others.length === 0 ? memo?.toString() : undefined;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return undefined;
    }
  }

  private feePayerOf({ extra }: Requirement): string {
    const feePayer = extra.optionalText('feePayer');
    if (feePayer === undefined) {
      throw new Refusal('invalid_exact_svm_payload_missing_fee_payer', 'extra.feePayer is missing');
    }
    if (!this.feePayers.has(feePayer)) {
      throw new Refusal(
        'invalid_exact_svm_fee_payer_not_managed_by_facilitator',
        'extra.feePayer must be an address that GET /x402/supported lists',
      );
    }
    return feePayer;
  }

  /** Another one of our keys might sign too, for what it does not know. */
  private checkIsNotOurs({ accounts }: SolanaTransaction): void {
    if ([...this.feePayers.values()].some((address) => accounts.indexOf(address) > 0)) {
      throw new Refusal('invalid_exact_svm_invalid_fee_payer', 'No other payer of fees may have a part in the payment');
    }
  }

  private *checkRecipient({ source, destination, mint, tokenProgram }: SolanaTransfer, payTo: string): Task<void> {
    const key = `${payTo}/${mint}`;
    let account = this.tokenAccounts.get(key);
    if (account === undefined) {
      account = yield* associatedTokenAccount(payTo, mint, tokenProgram);
      this.tokenAccounts.set(key, account);
    }
    if (destination !== account) {
      throw new Refusal(
        'invalid_exact_svm_payload_recipient_mismatch',
        'The destination is not the associated token account of payTo',
      );
    }
    if (source === destination) throw new Refusal('invalid_payload', 'The payer is the recipient');
  }
}

/** A token, with addresses in hexadecimal digits. */
interface AcceptedAsset {
  network: string;
  mint: string;
  decimals: number;
  tokenProgram: string;
}

const acceptedAsset = ({ network, mint, decimals, program }: SolanaAsset): AcceptedAsset => ({
  network,
  decimals,
  mint: readSolanaAddress(mint)!,
  tokenProgram: tokenPrograms[program],
});

/** The bytes of base64 in its one form: that of RFC 4648 with its padding. */
function readBase64(payload: Members, text: string): Buffer {
  if (text.length > encodedLengthMax) payload.refuse('transaction', `must have at most ${transactionBytesMax} bytes`);
  const bytes = Buffer.from(text, 'base64');
  if (bytes.toString('base64') !== text || bytes.length > transactionBytesMax) {
    throw new Refusal(
      'invalid_exact_svm_payload_transaction_could_not_be_decoded',
      `The transaction must be base64 of at most ${transactionBytesMax} bytes`,
    );
  }
  return bytes;
}

function checkTerms(
  { tokenProgram, mint, authority, amount, decimals, memos }: SolanaTransfer,
  asset: AcceptedAsset,
  requirement: Requirement,
  payTo: string,
): void {
  if (mint !== asset.mint) {
    throw new Refusal('invalid_exact_svm_payload_mint_mismatch', 'The mint is not that of the asset');
  }
  if (tokenProgram !== asset.tokenProgram) {
    throw new Refusal(
      'invalid_exact_svm_payload_no_transfer_instruction',
      'The transfer is not by the program of the asset',
    );
  }
  if (decimals !== asset.decimals) {
    throw new Refusal('invalid_exact_svm_payload_transaction', 'The transfer has other decimals than the asset');
  }
  if (authority === payTo) throw new Refusal('invalid_payload', 'The payer is the recipient');
  if (amount !== requirement.amount) {
    throw new Refusal(
      'invalid_exact_svm_payload_amount_mismatch',
      'The amount must be exactly the one that is required',
    );
  }
  checkMemo(memos, requirement.extra);
}

/** A quote is named by the memo, so that the payment is for it and no other. */
function checkMemo(memos: readonly Buffer[], extra: Members): void {
  const expected = extra.optionalText('memo') || extra.optionalText('quoteId');
  if (memos.length > 1 || (expected && memos.length === 0)) {
    throw new Refusal(
      'invalid_exact_svm_payload_memo_count',
      'There must be one memo, or at most one if the requirements have none',
    );
  }
  if (expected && !memos[0]!.equals(Buffer.from(expected))) {
    throw new Refusal('invalid_exact_svm_payload_memo_mismatch', 'The memo is not extra.memo, or else extra.quoteId');
  }
}

/**
 * The first signature is made when the payment is settled. If it might be anything before, a payment would have many
 * forms.
 */
function checkSignatures({ signatures, accounts, message }: SolanaTransaction): void {
  const [first, ...others] = signatures;
  if (!first!.equals(signatureEmpty)) throw refusedSignature('The signature of the payer of the fee must be empty');
  const areValid = others.every((signature, index) =>
    isEd25519Signature(Buffer.from(accounts[index + 1]!, 'hex'), message, signature),
  );
  if (!areValid) throw refusedSignature('The signature is not of the key of the payer');
}

const refusedSignature = (message: string) => new Refusal('invalid_exact_svm_payload_signature_invalid', message);
