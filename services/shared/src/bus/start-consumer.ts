import type { Consumer, ConsumerOptions } from './consumer';
import { startKafkaConsumer } from './kafka-consumer';
import { startOutboxConsumer } from './outbox-consumer';

/**
 * Applies the events of a source, each exactly once whatever is killed when: its effects, its entry in the inbox and
 * the consumer's place are one transaction. Any number of copies may run: reading the outbox one of them gets on at a
 * time, with Kafka they share its partitions.
 */
export function startConsumer(options: ConsumerOptions): Consumer {
  return options.bus ? startKafkaConsumer({ ...options, bus: options.bus }) : startOutboxConsumer(options);
}
