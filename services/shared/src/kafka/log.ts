import type { Logger } from '../logger';

/** As kafkajs numbers its levels. */
const kafkaError = 1;

/**
 * What kafkajs logs as an error although it belongs to every day: a member joins, the broker is away or has just
 * started. Those who use the client say in their own words when something lasts.
 */
const ordinary = [
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

/** Takes what kafkajs logs: errors that are not of every day become warnings, all else is for whoever debugs. */
export function kafkaLogWriter(log: Logger): (entry: KafkaLogEntry) => void {
  return ({ namespace, level, log: { message, error } }) => {
    const fields = {
      kafka: namespace,
      ...(error === undefined ? {} : { error: error instanceof Error ? error.message : error }),
    };
    if (level === kafkaError && !ordinary.some((pattern) => pattern.test(message))) log.warn(fields, message);
    else log.debug(fields, message);
  };
}
