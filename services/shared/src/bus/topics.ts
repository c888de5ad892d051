import type { ServiceName } from '../trust/services';

/**
 * The topics of each service. In Kafka only a deploy step creates them (`npm run bus:topics`). Topics of two services
 * may have the same name here: in Kafka the name of the service is part of it.
 */
export const publishedTopics: Readonly<Record<string, readonly string[]>> = {
  data: ['usage', 'tasks'],
  blobs: ['usage'],
  payments: ['prices'],
};

/** The readers of each topic, for whom its events are signed. */
const subscribers: Readonly<Record<string, readonly ServiceName[]>> = {
  'data.usage': ['blobs', 'finance'],
  'data.tasks': ['tasks'],
  'blobs.usage': ['finance'],
  'payments.prices': ['finance'],
};

export const subscribersOf = (service: string, topic: string): readonly ServiceName[] =>
  subscribers[`${service}.${topic}`] ?? [];

/**
 * Partitions of every topic; at most so many copies of a consumer can share it. Never change it: with another number a
 * key would move to another partition, and events of different aggregates with that key could overtake each other.
 */
export const topicPartitions = 6;

/** The name of a service's topic in Kafka. */
export function kafkaTopic(prefix: string, service: string, topic: string): string {
  return `${prefix}.${service}.${topic}`;
}

/** All topics of a deployment, by their names in Kafka. */
export function kafkaTopics(prefix: string): string[] {
  return Object.entries(publishedTopics).flatMap(([service, topics]) =>
    topics.map((topic) => kafkaTopic(prefix, service, topic)),
  );
}

/** The deploy step that creates topics has not run. */
export class TopicsMissing extends Error {
  override readonly name = 'TopicsMissing';
  constructor(topics: readonly string[]) {
    super(`Kafka has no topic ${topics.join(', ')}: run npm run bus:topics`);
  }
}
