import type { Logger } from '../logger';
import { openKafka, type Kafka } from '../kafka/client';
import { readBrokerOptions } from '../kafka/broker-options';
import type { KafkaSettings } from '../kafka/settings';

/** Through Kafka. */
export interface KafkaBus {
  kafka: Kafka;
  /** Begins the names of topics and groups, so that deployments can share a broker. */
  prefix: string;
}

/** How events travel: undefined for the readers' way straight to the outbox, over gRPC. */
export type Bus = KafkaBus | undefined;

/** What the configuration of a service says about events. */
export interface BusConfig extends KafkaSettings {
  BUS: 'postgres' | 'kafka';
}

/** The transport that a service is to use. Throws a ConfigError when it is not told where Kafka is. */
export function openBus(config: BusConfig, service: string, log: Logger): Bus {
  if (config.BUS === 'postgres') return undefined;
  const kafka = openKafka({ ...readBrokerOptions(config), clientId: `granary-${service}`, log });
  return { kafka, prefix: config.KAFKA_TOPIC_PREFIX };
}
