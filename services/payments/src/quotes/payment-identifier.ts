import { createHash } from 'node:crypto';
import { invalid } from '@granary/shared/errors';
import type { JsonObject, JsonValue } from '@granary/shared/json/value';

const name = 'payment-identifier';
const pattern = '^[a-zA-Z0-9_-]+$';
const lengths = { min: 16, max: 128 };

/** The extension of version 2 by which a client names its request, as the specification declares it. */
export const paymentIdentifierExtension = {
  [name]: {
    info: { required: false },
    schema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: {
        required: { type: 'boolean' },
        id: { type: 'string', minLength: lengths.min, maxLength: lengths.max, pattern },
      },
      required: ['required'],
    },
  },
};

/** The identifier in a payment; undefined where it has none. Throws VALIDATION_FAILED for one that is not valid. */
export function paymentIdentifierIn(payment: JsonObject): string | undefined {
  const id = memberOf(memberOf(memberOf(payment.get('extensions'), name), 'info'), 'id');
  if (id === undefined || id === null) return undefined;
  const isValid =
    typeof id === 'string' && id.length >= lengths.min && id.length <= lengths.max && new RegExp(pattern).test(id);
  if (isValid) return id;
  throw invalid('The payment is not valid', { [name]: ['must be 16 to 128 letters, digits, - and _'] });
}

const memberOf = (value: JsonValue | undefined, key: string): JsonValue | undefined =>
  value instanceof Map ? value.get(key) : undefined;

/**
 * The identifier by which a payer repeats a request: a hash of 32 bytes over the payer, the Idempotency-Key and the
 * identifier in the payment. Undefined when the request has neither of the latter two.
 */
export function identifierOf(
  idempotencyKey: string,
  paymentIdentifier: string | undefined,
  payer: string,
): Buffer | undefined {
  if (idempotencyKey === '' && paymentIdentifier === undefined) return undefined;
  const parts = [payer.toLowerCase(), idempotencyKey, paymentIdentifier ?? ''];
  return createHash('sha256').update(JSON.stringify(parts)).digest();
}
