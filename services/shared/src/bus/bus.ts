import { ConfigError } from '../config';
import type { Logger } from '../logger';
import { openKafka, type Kafka } from './kafka';

/** Through Kafka. */
export interface KafkaBus {
  kafka: Kafka;
  /** Begins the names of topics and groups, so that deployments can share a broker. */
  prefix: string;
}

/** How events travel: undefined for the readers' way straight to the outbox, over gRPC. */
export type Bus = KafkaBus | undefined;

/** What the configuration of a service says about events. */
export interface BusConfig {
  BUS: 'postgres' | 'kafka';
  /** host:port, separated by commas. */
  KAFKA_BROKERS?: string | undefined;
  KAFKA_TOPIC_PREFIX: string;
}

/** The transport that a service is to use. Throws a ConfigError when it is not told where Kafka is. */
export function openBus(config: BusConfig, service: string, log: Logger): Bus {
  if (config.BUS === 'postgres') return undefined;
  if (config.KAFKA_BROKERS === undefined)
    throw new ConfigError('The configuration is wrong:\n  KAFKA_BROKERS: is needed when BUS is kafka');
  const brokers = config.KAFKA_BROKERS.split(',');
  return { kafka: openKafka({ brokers, clientId: `granary-${service}`, log }), prefix: config.KAFKA_TOPIC_PREFIX };
}
