import type { Logger } from '../logger';
import { openKafka, type Kafka } from '../kafka/client';
import { readBrokerOptions } from '../kafka/broker-options';
import type { KafkaSettings } from '../kafka/settings';

/** Events through Kafka. */
export interface KafkaBus {
  kafka: Kafka;
  /** Prefix of the names of topics and groups, so that deployments can share a broker. */
  prefix: string;
}

/** The transport of events; undefined: consumers read the outbox over gRPC. */
export type Bus = KafkaBus | undefined;

/** The settings of the transport of events. */
export interface BusConfig extends KafkaSettings {
  BUS: 'postgres' | 'kafka';
}

/** The transport of a service. Throws a ConfigError when the address of Kafka is missing. */
export function openBus(config: BusConfig, service: string, log: Logger): Bus {
  if (config.BUS === 'postgres') return undefined;
  const kafka = openKafka({ ...readBrokerOptions(config, log), clientId: `granary-${service}`, log });
  return { kafka, prefix: config.KAFKA_TOPIC_PREFIX };
}
