import { z } from 'zod';
import { optionalText } from '../config';

/** The settings of the connection to Kafka. */
export const kafkaSettings = {
  KAFKA_BROKERS: z
    .string()
    .regex(/^[^:,\s]+:\d{1,5}(,[^:,\s]+:\d{1,5})*$/, 'host:port is expected, or several with commas between')
    .optional()
    .meta({ description: 'host:port of a broker, or several, separated by commas.', defaultText: 'for `kafka`' }),
  KAFKA_TOPIC_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,64}$/, 'letters, digits, _ and - are expected')
    .default('granary')
    .describe('Prefix of the names of topics and groups.'),
  KAFKA_SASL_MECHANISM: z
    .enum(['plain', 'scram-sha-256', 'scram-sha-512'])
    .default('scram-sha-512')
    .describe('How the brokers authenticate the user.'),
  KAFKA_SASL_USERNAME: optionalText.describe('The user at the brokers. Without it SASL is not used.'),
  KAFKA_SASL_PASSWORD: optionalText.describe('The password of that user.'),
  KAFKA_SASL_PASSWORD_FILE: optionalText.describe('A file with the password, in place of `KAFKA_SASL_PASSWORD`.'),
  KAFKA_TLS: z.stringbool().default(false).describe('Whether the brokers use TLS.'),
  KAFKA_TLS_CA_FILE: optionalText.meta({
    description: "PEM of the authorities that sign the brokers' certificates.",
    defaultText: "Node's own",
  }),
  KAFKA_TLS_CERT_FILE: optionalText.describe('PEM of a client certificate, if the brokers require one.'),
  KAFKA_TLS_KEY_FILE: optionalText.describe('PEM of the private key of that certificate.'),
};

export type KafkaSettings = z.infer<z.ZodObject<typeof kafkaSettings>>;

/** The settings of the command-line tools for Kafka. */
export const kafkaConfig = z.object(kafkaSettings);
