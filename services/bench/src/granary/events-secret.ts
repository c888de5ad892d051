/** The secret from which the publisher and the subscriber of the benchmark derive their keys. */
export const eventsSecret = 'a secret of the benchmark of events';
