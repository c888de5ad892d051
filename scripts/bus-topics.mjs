import { parseArgs } from 'node:util';
import { fileURLToPath } from 'node:url';
import path from 'node:path';

const usage = `Makes the topics of Granary in Kafka that are missing; what is there is left alone.

  npm run bus:topics -- [--brokers host:port,…] [--prefix name]

  --brokers   KAFKA_BROKERS
  --prefix    KAFKA_TOPIC_PREFIX, default granary

What the brokers ask of clients is said by KAFKA_SASL_… and KAFKA_TLS…, as to the services.
`;

/** Makes the topics that are missing, and says which. Needs the built services. */
export async function makeTopics({ environment, say }) {
  const { openKafka } = await import('@granary/shared/kafka/client');
  const { readBrokerOptions } = await import('@granary/shared/kafka/broker-options');
  const { kafkaConfig } = await import('@granary/shared/kafka/settings');
  const { readConfig } = await import('@granary/shared/config');
  const { kafkaTopics, topicPartitions } = await import('@granary/shared/bus/topics');
  const { createLogger } = await import('@granary/shared/logger');
  const config = readConfig(kafkaConfig, environment);
  const prefix = config.KAFKA_TOPIC_PREFIX;
  const kafka = openKafka({
    ...readBrokerOptions(config),
    clientId: 'granary-topics',
    log: createLogger('topics', 'warn'),
  });
  const made = await kafka.createTopics(kafkaTopics(prefix), topicPartitions);
  for (const topic of kafkaTopics(prefix)) say(`${topic}: ${made.includes(topic) ? 'made' : 'is there'}`);
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
      await makeTopics({ environment, say: console.log });
    }
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
