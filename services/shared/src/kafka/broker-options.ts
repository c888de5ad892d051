import { wrongConfig, type ConfigError } from '../config';
import type { Logger } from '../logger';
import { PemFiles, type PemPaths } from '../trust/pem-files';
import { readSecret } from '../trust/setting-file';
import type { KafkaSettings } from './settings';

/** How clients authenticate. */
export interface KafkaSasl {
  mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512';
  username: string;
  password: string;
}

/** The addresses of the brokers, and how clients connect. */
export interface BrokerOptions {
  brokers: readonly string[];
  sasl?: KafkaSasl | undefined;
  /** The files for TLS; absent: connections have no TLS. Without authorities the default ones of Node apply. */
  tls?: PemFiles | undefined;
}

/**
 * The options that the settings describe; reads the files. Throws a ConfigError that names each setting that is missing
 * or conflicts.
 */
export function readBrokerOptions(settings: KafkaSettings, log: Logger): BrokerOptions {
  const { KAFKA_BROKERS: brokers } = settings;
  if (brokers === undefined) throw wrong('KAFKA_BROKERS', 'is needed when BUS is kafka');
  return { brokers: brokers.split(','), sasl: readSasl(settings), tls: readTls(settings, log) };
}

function readSasl(settings: KafkaSettings): KafkaSasl | undefined {
  const { KAFKA_SASL_USERNAME: username } = settings;
  const password = readSecret(settings, 'KAFKA_SASL_PASSWORD');
  if (username === undefined && password === undefined) return undefined;
  if (username === undefined) throw wrong('KAFKA_SASL_USERNAME', 'is missing');
  if (!password) throw wrong('KAFKA_SASL_PASSWORD', 'is missing');
  return { mechanism: settings.KAFKA_SASL_MECHANISM, username, password };
}

function readTls(settings: KafkaSettings, log: Logger): PemFiles | undefined {
  const { KAFKA_TLS_CA_FILE: ca, KAFKA_TLS_CERT_FILE: cert, KAFKA_TLS_KEY_FILE: key } = settings;
  if (!settings.KAFKA_TLS) {
    if (ca ?? cert ?? key) throw wrong('KAFKA_TLS', 'must be true for certificates to be used');
    return undefined;
  }
  if ((cert === undefined) !== (key === undefined))
    throw wrong(cert === undefined ? 'KAFKA_TLS_CERT_FILE' : 'KAFKA_TLS_KEY_FILE', 'is missing');
  const paths: PemPaths = {
    ...(ca !== undefined && { ca: ['KAFKA_TLS_CA_FILE', ca] }),
    ...(cert !== undefined && { cert: ['KAFKA_TLS_CERT_FILE', cert] }),
    ...(key !== undefined && { key: ['KAFKA_TLS_KEY_FILE', key] }),
  };
  return new PemFiles(paths, log);
}

const wrong = (name: string, why: string): ConfigError => wrongConfig([[name, why]]);
