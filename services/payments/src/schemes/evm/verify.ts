import { keccak_256 } from '@noble/hashes/sha3';
import type { Task } from '@granary/shared/concurrency/time-slicing';
import { isLowS, recoverPublicKey } from '@granary/shared/money/secp256k1';
import { assetKeyOf, type EvmAsset } from './assets';
import { authorizationDigest, domainSeparatorOf, type Authorization } from './eip3009';
import type { ExactPayment, Requirement } from '../../verify/envelope';
import { readEvmAddress } from './address';
import type { ExactVerifier } from '../../verify/exact-verifier';
import type { Members } from '../../verify/members';
import { Refusal } from '../../verify/refusal';
import type { VerifiedPayment } from '../../verify/verified-payment';

/** Time that sending a transaction takes, at least, and by how much clocks may differ. */
const sendingSeconds = 6n;
const skewSeconds = 60n;
/** The longest signature that is looked at, in hexadecimal digits. */
const signatureDigitsMax = 8_192;
// The end of a signature of a wallet that is not deployed yet (ERC-6492).
const undeployed = /(6492){16}$/;

/** Verifies payments by signed authorizations (EIP-3009) of externally owned accounts, without the chain. */
export class EvmExact implements ExactVerifier {
  private readonly assets: ReadonlyMap<string, { asset: EvmAsset; domainSeparator: Buffer }>;
  private readonly networksOfAssets: ReadonlySet<string>;

  constructor(
    assets: readonly EvmAsset[],
    readonly signers: ExactVerifier['signers'] = {},
  ) {
    this.assets = new Map(
      assets.map((asset) => [assetKeyOf(asset), { asset, domainSeparator: domainSeparatorOf(asset) }]),
    );
    this.networksOfAssets = new Set(assets.map(({ network }) => network));
  }

  networks(): Iterable<string> {
    return this.networksOfAssets;
  }

  verifies(network: string): boolean {
    return this.networksOfAssets.has(network);
  }

  *verify({ version, requirement, payload }: ExactPayment, nowSeconds: bigint): Task<VerifiedPayment> {
    const { asset, domainSeparator } = this.assetFor(requirement);
    const payTo = readEvmAddress(requirement.payTo);
    if (payTo === undefined) throw new Refusal('invalid_payment_requirements', 'payTo must be an address');
    const signature = readSignature(payload);
    const members = payload.child('authorization');
    const authorization = readAuthorization(members);
    const payer = members.text('from');
    try {
      checkTerms(authorization, { ...requirement, payTo }, version, nowSeconds);
      yield;
      checkSignature(authorizationDigest(domainSeparator, authorization), signature, authorization.from);
    } catch (error) {
      if (error instanceof Refusal) error.payer = payer;
      throw error;
    }
    return {
      payer,
      scope: assetKeyOf(asset),
      // Neither the signature nor the spelling of what is signed: both have several forms.
      key: `${authorization.from}|${authorization.nonce.toLowerCase()}`,
      validUntilSeconds: Number(authorization.validBefore),
      proof: proofOf(asset, authorization, signature),
    };
  }

  /** The domain is the configured one: a requirement that states another would verify here and fail on the chain. */
  private assetFor({ network, asset: address, extra }: Requirement): { asset: EvmAsset; domainSeparator: Buffer } {
    const read = readEvmAddress(address);
    if (read === undefined) throw new Refusal('invalid_payment_requirements', 'asset must be an address');
    const entry = this.assets.get(`${network}/${read}`);
    if (!entry) throw new Refusal('invalid_payment_requirements', 'The asset is not accepted on the network');
    const method = extra.optionalText('assetTransferMethod') ?? 'eip3009';
    if (method !== 'eip3009') {
      throw new Refusal('invalid_payment_requirements', 'Only transfers by EIP-3009 are verified');
    }
    if (extra.optionalText('name') !== entry.asset.name || extra.optionalText('version') !== entry.asset.version) {
      throw new Refusal(
        'invalid_payment_requirements',
        'extra.name and extra.version must be those of the EIP-712 domain of the asset',
      );
    }
    return entry;
  }
}

/** An authorization with its signature, in texts: what the token is called with. */
export interface EvmProof {
  network: string;
  asset: string;
  from: string;
  to: string;
  value: string;
  validAfter: string;
  validBefore: string;
  nonce: string;
  signature: string;
}

const proofOf = (asset: EvmAsset, authorization: Authorization, signature: Buffer): EvmProof => ({
  network: asset.network,
  asset: asset.address,
  from: authorization.from,
  to: authorization.to,
  value: authorization.value.toString(),
  nonce: authorization.nonce.toLowerCase(),
  validAfter: authorization.validAfter.toString(),
  validBefore: authorization.validBefore.toString(),
  signature: `0x${signature.toString('hex')}`,
});

function readAuthorization(members: Members): Authorization {
  const address = (name: string) => readEvmAddress(members.text(name)) ?? members.refuse(name, 'must be an address');
  const nonce = members.text('nonce');
  if (!/^0x[0-9a-fA-F]{64}$/.test(nonce)) members.refuse('nonce', 'must be 0x and 64 hexadecimal digits');
  return {
    from: address('from'),
    to: address('to'),
    value: members.amount('value'),
    validAfter: members.whole('validAfter'),
    validBefore: members.whole('validBefore'),
    nonce,
  };
}

/** The bytes of the signature of a key: r, s and v. */
function readSignature(payload: Members): Buffer {
  const text = payload.text('signature');
  if (text.length > signatureDigitsMax) payload.refuse('signature', `must have at most ${signatureDigitsMax} digits`);
  if (!/^0x([0-9a-fA-F]{2})*$/.test(text)) payload.refuse('signature', 'must be 0x and hexadecimal digits');
  if (undeployed.test(text)) {
    throw new Refusal(
      'invalid_exact_evm_payload_undeployed_smart_wallet',
      'Signatures of contract wallets cannot be verified here: that takes the chain',
    );
  }
  const bytes = Buffer.from(text.slice(2), 'hex');
  if (bytes.length > 65) {
    throw refusedSignature('Signatures of contract wallets cannot be verified here: that takes the chain');
  }
  if (bytes.length !== 65) throw refusedSignature('The signature must have 65 bytes');
  return bytes;
}

function checkTerms(
  { from, to, value, validAfter, validBefore }: Authorization,
  { payTo, amount, maxTimeoutSeconds }: Requirement,
  version: 1 | 2,
  nowSeconds: bigint,
): void {
  if (to !== payTo) throw new Refusal('invalid_exact_evm_payload_recipient_mismatch', 'The recipient is not payTo');
  if (from === to) throw new Refusal('invalid_payload', 'The payer is the recipient');
  if (validBefore < nowSeconds + sendingSeconds || validBefore > nowSeconds + BigInt(maxTimeoutSeconds) + skewSeconds) {
    throw new Refusal(
      'invalid_exact_evm_payload_authorization_valid_before',
      `validBefore must lie at least ${sendingSeconds} seconds ahead, and at most maxTimeoutSeconds and ${skewSeconds} seconds`,
    );
  }
  if (validAfter >= nowSeconds) {
    throw new Refusal('invalid_exact_evm_payload_authorization_valid_after', 'validAfter must lie in the past');
  }
  if (value !== amount) {
    throw new Refusal(
      version === 1
        ? 'invalid_exact_evm_payload_authorization_value'
        : 'invalid_exact_evm_payload_authorization_value_mismatch',
      'The value must be exactly the amount that is required',
    );
  }
}

function checkSignature(digest: Uint8Array, signature: Buffer, from: string): void {
  const v = signature[64];
  if (v !== 27 && v !== 28) throw refusedSignature('The last byte of the signature must be 27 or 28');
  if (!isLowS(signature)) throw refusedSignature('The signature is not in its low form');
  const publicKey = recoverPublicKey(digest, signature.subarray(0, 64), v === 27 ? 0 : 1);
  const signer = publicKey && `0x${Buffer.from(keccak_256(publicKey).subarray(12)).toString('hex')}`;
  if (signer !== from) {
    throw refusedSignature(
      'The signature is not of the key of the payer; of a contract wallet it could not be verified here',
    );
  }
}

const refusedSignature = (message: string) => new Refusal('invalid_exact_evm_payload_signature', message);
