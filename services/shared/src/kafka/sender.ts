import { Partitioners, type Kafka as KafkaJs } from 'kafkajs';
import { closeWithTimeout, kafkajsRetry } from './kafkajs-options';
import type { KafkaMessage } from './messages';

/** An idempotent producer. */
export interface Sender {
  /**
   * Resolves when all brokers have all messages. After an error the outcome is unknown, and the sender must be closed.
   */
  send(messages: readonly KafkaMessage[]): Promise<void>;
  close(): Promise<void>;
}

export async function openSender(client: KafkaJs): Promise<Sender> {
  const producer = client.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
    retry: kafkajsRetry,
  });
  const close = () => closeWithTimeout(producer.disconnect());
  try {
    await producer.connect();
  } catch (error) {
    await close();
    throw error;
  }
  return {
    send: async (messages) => {
      await producer.sendBatch({ acks: -1, topicMessages: byTopic(messages) });
    },
    close,
  };
}

function byTopic(messages: readonly KafkaMessage[]): Array<{ topic: string; messages: Omit<KafkaMessage, 'topic'>[] }> {
  const lists = new Map<string, Omit<KafkaMessage, 'topic'>[]>();
  for (const { topic, ...message } of messages) {
    const list = lists.get(topic);
    if (list) list.push(message);
    else lists.set(topic, [message]);
  }
  return [...lists].map(([topic, list]) => ({ topic, messages: list }));
}
