import { GranaryError, type PaymentOffer } from './errors.ts';
import type { Payer } from './http/transport.ts';

/** The part of an `x402HTTPClient` of `@x402/fetch` that is used. */
export interface X402Client<Required, Payload> {
  getPaymentRequiredResponse(header: (name: string) => string | null, body?: unknown): Required;
  createPaymentPayload(required: Required): Promise<Payload>;
  encodePaymentSignatureHeader(payload: Payload): Record<string, string>;
}

/**
 * Pays what calls cost, each once: `granary({ …, pay: x402Payments(new x402HTTPClient(client), { maxUtia }) })`.
 * A call that costs more than `maxUtia` throws GranaryError with PAYMENT_REQUIRED, as all do without this.
 */
export function x402Payments<Required, Payload>(
  client: X402Client<Required, Payload>,
  { maxUtia }: { maxUtia: number },
): Payer {
  if (!Number.isSafeInteger(maxUtia) || maxUtia < 0) throw new TypeError('maxUtia is a number of utia');
  return async ({ headers, body }) => {
    const asked = body as { details?: { amount_utia?: unknown }; accepts?: PaymentOffer[] } | undefined;
    const price = asked?.details?.amount_utia;
    if (typeof price !== 'number' || price > maxUtia) {
      const message = `The call costs ${String(price)} utia, and at most ${maxUtia} may be paid`;
      const details = { amount_utia: price };
      throw new GranaryError(message, { code: 'PAYMENT_REQUIRED', status: 402, details, offers: asked?.accepts ?? [] });
    }
    const required = client.getPaymentRequiredResponse((name) => headers.get(name), body);
    return client.encodePaymentSignatureHeader(await client.createPaymentPayload(required));
  };
}
