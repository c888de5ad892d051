import { z } from 'zod';

const file = z.string().min(1).optional();

/** Where Kafka is and what it asks of clients, by the names of the environment. */
export const kafkaSettings = {
  KAFKA_BROKERS: z
    .string()
    .regex(/^[^:,\s]+:\d{1,5}(,[^:,\s]+:\d{1,5})*$/, 'host:port is expected, or several with commas between')
    .optional(),
  /** Begins the names of topics and groups. */
  KAFKA_TOPIC_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,64}$/, 'letters, digits, _ and - are expected')
    .default('granary'),
  KAFKA_SASL_MECHANISM: z.enum(['plain', 'scram-sha-256', 'scram-sha-512']).default('scram-sha-512'),
  /** With it goes a password; absent: without SASL. */
  KAFKA_SASL_USERNAME: z.string().min(1).optional(),
  KAFKA_SASL_PASSWORD: z.string().min(1).optional(),
  KAFKA_SASL_PASSWORD_FILE: file,
  KAFKA_TLS: z.stringbool().default(false),
  /** Of the authorities that sign the certificates of brokers; absent: those that Node knows. */
  KAFKA_TLS_CA_FILE: file,
  /** Of this client, where brokers ask for a certificate. */
  KAFKA_TLS_CERT_FILE: file,
  KAFKA_TLS_KEY_FILE: file,
};

export type KafkaSettings = z.infer<z.ZodObject<typeof kafkaSettings>>;

/** What the tools for Kafka read. */
export const kafkaConfig = z.object(kafkaSettings);
