import { ServiceError } from '@granary/shared/errors';

export const RESULT_TOO_LARGE = 'RESULT_TOO_LARGE';

/** Bytes of the texts that one answer is made of, at most. */
export const resultBytesMax = 32 * 1024 * 1024;

export const resultTooLarge = (message: string, details: Record<string, string[]> = {}): ServiceError =>
  new ServiceError('RESOURCE_EXHAUSTED', RESULT_TOO_LARGE, message, { details });
