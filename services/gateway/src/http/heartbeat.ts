/** Proxies close what is silent for longer. */
const silenceMaxMs = 20_000;

/** The time after which an answer without an end shows a sign of life, so that nobody takes its connection for idle. */
export const heartbeatMs = (idleTimeoutMs: number): number => Math.min(silenceMaxMs, idleTimeoutMs / 2);
