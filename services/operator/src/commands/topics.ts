import { kafkaTopics, topicPartitions } from '@granary/shared/bus/topics';
import { readConfig } from '@granary/shared/config';
import { readBrokerOptions } from '@granary/shared/kafka/broker-options';
import { openKafka } from '@granary/shared/kafka/client';
import { kafkaConfig } from '@granary/shared/kafka/settings';
import { createLogger } from '@granary/shared/logger';
import { defineCommand } from '../program/command';

const usage = `Creates the topics of Granary that are missing in Kafka. Existing ones are not changed.

  npm run bus:topics -- [--brokers host:port,…] [--prefix name]

  --brokers   KAFKA_BROKERS
  --prefix    KAFKA_TOPIC_PREFIX, default granary

KAFKA_SASL_… and KAFKA_TLS… set authentication and TLS, as for the services.
`;

export const topics = defineCommand({
  usage,
  options: { brokers: { type: 'string' }, prefix: { type: 'string' } },
  settings: { brokers: 'KAFKA_BROKERS', prefix: 'KAFKA_TOPIC_PREFIX' },
  run: async (_values, _positionals, { environment, say }) => {
    if (!environment['KAFKA_BROKERS']) throw new Error(`--brokers or KAFKA_BROKERS is required.\n\n${usage}`);
    const config = readConfig(kafkaConfig, environment);
    const names = kafkaTopics(config.KAFKA_TOPIC_PREFIX);
    const log = createLogger('topics', 'warn');
    const kafka = openKafka({ ...readBrokerOptions(config, log), clientId: 'granary-topics', log });
    const created = await kafka.createTopics(names, topicPartitions);
    for (const name of names) say(`${name}: ${created.includes(name) ? 'created' : 'exists'}`);
  },
});
