/** The publisher and the subscriber of the benchmark derive their keys from it. */
export const eventsSecret = 'a secret of the benchmark of events';
