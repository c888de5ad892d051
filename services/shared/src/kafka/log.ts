import type { Logger } from '../logger';

/** The level of errors in kafkajs. */
const kafkaError = 1;

/**
 * Messages that kafkajs logs as errors in normal operation: a member joins, the broker is unreachable or has just
 * started. The users of the client log conditions that last.
 */
const expected = [
  /^Response (Heartbeat|JoinGroup|SyncGroup|OffsetCommit|OffsetFetch|LeaveGroup|Metadata|Produce|Fetch|ListOffsets)\(/,
  /^Response (GroupCoordinator|FindCoordinator|InitProducerId|CreateTopics)\(/,
  /^Connection (error|timeout)/,
  /^Failed to (connect|send)/,
  /^Crash: /,
  /^Restarting the consumer/,
  /^The coordinator is not aware of this member/,
  /^Offset out of range/,
  /^Caught error when disconnecting/,
];

interface KafkaLogEntry {
  namespace: string;
  level: number;
  log: { message: string; error?: unknown };
}

/** Logs messages of kafkajs: unexpected errors as warnings, all others at level debug. */
export function kafkaLogWriter(log: Logger): (entry: KafkaLogEntry) => void {
  return ({ namespace, level, log: { message, error } }) => {
    const fields = {
      kafka: namespace,
      ...(error === undefined ? {} : { error: error instanceof Error ? error.message : error }),
    };
    if (level === kafkaError && !expected.some((pattern) => pattern.test(message))) log.warn(fields, message);
    else log.debug(fields, message);
  };
}
