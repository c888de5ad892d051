import { parseArgs } from 'node:util';
import { fileURLToPath } from 'node:url';
import path from 'node:path';

const usage = `Creates the topics of Granary that are missing in Kafka. Existing ones are not changed.

  npm run bus:topics -- [--brokers host:port,…] [--prefix name]

  --brokers   KAFKA_BROKERS
  --prefix    KAFKA_TOPIC_PREFIX, default granary

KAFKA_SASL_… and KAFKA_TLS… set authentication and TLS, as for the services.
`;

/** Creates the missing topics, and prints each. Requires the built services. */
export async function createTopics({ environment, say }) {
  const { openKafka } = await import('@granary/shared/kafka/client');
  const { readBrokerOptions } = await import('@granary/shared/kafka/broker-options');
  const { kafkaConfig } = await import('@granary/shared/kafka/settings');
  const { readConfig } = await import('@granary/shared/config');
  const { kafkaTopics, topicPartitions } = await import('@granary/shared/bus/topics');
  const { createLogger } = await import('@granary/shared/logger');
  const config = readConfig(kafkaConfig, environment);
  const prefix = config.KAFKA_TOPIC_PREFIX;
  const log = createLogger('topics', 'warn');
  const kafka = openKafka({ ...readBrokerOptions(config, log), clientId: 'granary-topics', log });
  const made = await kafka.createTopics(kafkaTopics(prefix), topicPartitions);
  for (const topic of kafkaTopics(prefix)) say(`${topic}: ${made.includes(topic) ? 'created' : 'exists'}`);
}

if (process.argv[1] && path.resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  try {
    const { values } = parseArgs({
      options: { brokers: { type: 'string' }, prefix: { type: 'string' }, help: { type: 'boolean' } },
    });
    const brokers = values.brokers ?? process.env.KAFKA_BROKERS;
    if (values.help) console.log(usage);
    else if (!brokers) throw new Error(`--brokers or KAFKA_BROKERS is required.\n\n${usage}`);
    else {
      const environment = { ...process.env, KAFKA_BROKERS: brokers };
      if (values.prefix) environment.KAFKA_TOPIC_PREFIX = values.prefix;
      await createTopics({ environment, say: console.log });
    }
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
