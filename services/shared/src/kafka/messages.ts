/** A message to send. */
export interface KafkaMessage {
  topic: string;
  /** Messages with the same key go to one partition, in the order in which they are sent. */
  key: string;
  value: Buffer;
  headers: Record<string, string>;
}

export interface ReceivedMessage {
  key: string;
  value: Buffer;
  headers: Record<string, string>;
  offset: bigint;
}

export interface Partition {
  topic: string;
  partition: number;
}

/** The offset that reading continues from in a partition. */
export interface PartitionOffset extends Partition {
  next: bigint;
}

/** The offsets that the broker has of a partition: from `low`, up to but without `high`. */
export interface PartitionRange extends Partition {
  low: bigint;
  high: bigint;
}

export function isSamePartition(a: Partition, b: Partition): boolean {
  return a.topic === b.topic && a.partition === b.partition;
}
