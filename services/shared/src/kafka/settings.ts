import { z } from 'zod';

const file = z.string().min(1).optional();

/** The settings of the connection to Kafka. */
export const kafkaSettings = {
  KAFKA_BROKERS: z
    .string()
    .regex(/^[^:,\s]+:\d{1,5}(,[^:,\s]+:\d{1,5})*$/, 'host:port is expected, or several with commas between')
    .optional(),
  /** Prefix of the names of topics and groups. */
  KAFKA_TOPIC_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,64}$/, 'letters, digits, _ and - are expected')
    .default('granary'),
  KAFKA_SASL_MECHANISM: z.enum(['plain', 'scram-sha-256', 'scram-sha-512']).default('scram-sha-512'),
  /** Needs a password; absent: without SASL. */
  KAFKA_SASL_USERNAME: z.string().min(1).optional(),
  KAFKA_SASL_PASSWORD: z.string().min(1).optional(),
  KAFKA_SASL_PASSWORD_FILE: file,
  KAFKA_TLS: z.stringbool().default(false),
  /** Certificates of the authorities that sign those of the brokers; absent: the default ones of Node. */
  KAFKA_TLS_CA_FILE: file,
  /** The certificate of this client and its key, where brokers require one. */
  KAFKA_TLS_CERT_FILE: file,
  KAFKA_TLS_KEY_FILE: file,
};

export type KafkaSettings = z.infer<z.ZodObject<typeof kafkaSettings>>;

/** The settings of the command-line tools for Kafka. */
export const kafkaConfig = z.object(kafkaSettings);
