import { unavailable } from '@granary/shared/errors';

/** The answer of the chain; any error of it becomes UNAVAILABLE, since the outcome is unknown. */
export const orUnavailable = <T>(answer: Promise<T>): Promise<T> =>
  answer.catch((cause: unknown) => {
    throw unavailable('The chain cannot be asked', cause);
  });
