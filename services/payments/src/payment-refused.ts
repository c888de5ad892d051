import { ServiceError } from '@granary/shared/errors';

export const PAYMENT_REFUSED = 'PAYMENT_REFUSED';

/** A payment is refused, for a reason that programs can read. */
export const refused = (reason: string, message: string): ServiceError =>
  new ServiceError('FAILED_PRECONDITION', PAYMENT_REFUSED, message, { details: { reason } });
