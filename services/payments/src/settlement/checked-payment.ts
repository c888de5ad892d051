import { createHmac, timingSafeEqual } from 'node:crypto';
import type { PayRequest } from '@granary/shared/gen/granary/payments/v1/PayRequest';
import type { QuoteKeys } from '../quotes/quote-keys';
import type { VerifiedPayment } from '../verify/verified-payment';
import type { ClaimedPurchase } from './claim';

/** How long a token counts: a request settles its payment once it has what it is answered with. */
const tokenMs = 60_000;
const macBytes = 32;
/** Sets the MACs of tokens apart from those of quotes, which the same keys make. */
const purpose = 'granary checked payment 1';

/** A payment that was verified, with what settling it needs to know. */
export interface CheckedPayment {
  verified: Omit<VerifiedPayment, 'refusal'>;
  purchase: ClaimedPurchase;
  /** The payer has sent it, so its money has moved. */
  isSent: boolean;
  /** Nothing on the chain names its quote. */
  hasSecretQuote: boolean;
}

type Request = Pick<PayRequest, 'purchase' | 'identifier'>;

/** A token by which a copy of this service knows later what was found about the payment of a request. */
export async function tokenOf(
  keys: QuoteKeys,
  request: Request,
  { verified, purchase, isSent, hasSecretQuote }: CheckedPayment,
  now: Date,
): Promise<Buffer> {
  const text = JSON.stringify({
    verified,
    purchase: {
      ...purchase,
      requestHash: purchase.requestHash.toString('base64'),
      fingerprint: purchase.fingerprint.toString('base64'),
      identifier: purchase.identifier?.toString('base64') ?? null,
      amountUtia: purchase.amountUtia.toString(),
      amount: purchase.amount.toString(),
    },
    isSent,
    hasSecretQuote,
    request: bindingOf(request),
    checkedAtMs: now.getTime(),
  });
  return Buffer.concat([macOf(await keys.current(), text), Buffer.from(text)]);
}

/** The payment of a token; undefined for one of another request or another payment, or of more than a minute ago. */
export async function readToken(
  keys: QuoteKeys,
  request: Request,
  { token, fingerprint }: { token: Buffer; fingerprint: Buffer },
  now: Date,
): Promise<CheckedPayment | undefined> {
  const mac = token.subarray(0, macBytes);
  const text = token.toString('utf8', macBytes);
  const accepted = await keys.accepted();
  if (mac.length < macBytes || !accepted.some((key) => timingSafeEqual(macOf(key, text), mac))) return undefined;
  const stated = JSON.parse(text) as StatedPayment;
  if (stated.request !== bindingOf(request) || Math.abs(now.getTime() - stated.checkedAtMs) > tokenMs) return undefined;
  const { verified, purchase, isSent, hasSecretQuote } = stated;
  const checked = {
    verified,
    purchase: {
      ...purchase,
      requestHash: Buffer.from(purchase.requestHash, 'base64'),
      fingerprint: Buffer.from(purchase.fingerprint, 'base64'),
      identifier: purchase.identifier === null ? null : Buffer.from(purchase.identifier, 'base64'),
      amountUtia: BigInt(purchase.amountUtia),
      amount: BigInt(purchase.amount),
    },
    isSent,
    hasSecretQuote,
  };
  return checked.purchase.fingerprint.equals(fingerprint) ? checked : undefined;
}

/** A checked payment as JSON has it. */
interface StatedPayment extends Omit<CheckedPayment, 'purchase'> {
  purchase: { [K in keyof ClaimedPurchase]: AsJson<ClaimedPurchase[K]> };
  request: string;
  checkedAtMs: number;
}

type AsJson<T> = T extends Buffer | bigint ? string : T;

/** The parts of a request that what was found depends on. */
const bindingOf = ({ purchase, identifier }: Request): string => {
  const { appId, requestHash, amountUtia, appSharePpm, isUpfront, networks } = purchase!;
  return JSON.stringify([
    appId,
    requestHash.toString('base64'),
    amountUtia,
    appSharePpm ?? null,
    isUpfront,
    networks?.names ?? null,
    identifier,
  ]);
};

const macOf = (key: Buffer, text: string): Buffer => createHmac('sha256', key).update(`${purpose}\n${text}`).digest();
