import type { Consumer, ConsumerOptions } from './consumer';
import { KafkaConsumer } from './kafka-consumer';
import { OutboxConsumer } from './outbox-consumer';

/**
 * Applies the events of a source, each exactly once whatever crashes when: the effects of an event, its entry in the
 * inbox and the move of the consumer's cursor are one transaction. Any number of copies may run: one at a time reads
 * the outbox; with Kafka they share its partitions.
 */
export function startConsumer(options: ConsumerOptions): Consumer {
  const { bus } = options;
  return bus ? new KafkaConsumer({ ...options, bus }) : new OutboxConsumer(options);
}
