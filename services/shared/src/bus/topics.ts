import type { ServiceName } from '../trust/services';

/**
 * What each service publishes, and so which topics there are in Kafka. A deploy step makes them (`npm run bus:topics`);
 * nothing else does. Topics of two services may share a name here: in Kafka the service's name is part of it.
 */
export const publishedTopics: Readonly<Record<string, readonly string[]>> = {
  data: ['usage', 'tasks'],
  blobs: ['usage'],
};

/** Who reads a topic, and so whom its events are signed for. */
const subscribers: Readonly<Record<string, readonly ServiceName[]>> = {
  'data.usage': ['blobs', 'finance'],
  'data.tasks': ['tasks'],
  'blobs.usage': ['finance'],
};

export const subscribersOf = (service: string, topic: string): readonly ServiceName[] =>
  subscribers[`${service}.${topic}`] ?? [];

/**
 * Partitions of every topic; the most copies of a consumer that can share it. Final: with another number a key would
 * move to another partition, and events of different aggregates with that key could overtake each other.
 */
export const topicPartitions = 6;

/** The name that a service's topic has in Kafka. */
export function kafkaTopic(prefix: string, service: string, topic: string): string {
  return `${prefix}.${service}.${topic}`;
}

/** All topics of a deployment, by their names in Kafka. */
export function kafkaTopics(prefix: string): string[] {
  return Object.entries(publishedTopics).flatMap(([service, topics]) =>
    topics.map((topic) => kafkaTopic(prefix, service, topic)),
  );
}

/** A deploy step was left out. */
export class TopicsMissing extends Error {
  override readonly name = 'TopicsMissing';
  constructor(topics: readonly string[]) {
    super(`Kafka has no topic ${topics.join(', ')}: npm run bus:topics makes it`);
  }
}
