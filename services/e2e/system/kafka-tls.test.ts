import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readConfig } from '@granary/shared/config';
import { readBrokerOptions } from '@granary/shared/kafka/broker-options';
import { openKafka } from '@granary/shared/kafka/client';
import { kafkaConfig } from '@granary/shared/kafka/settings';
import { createLogger } from '@granary/shared/logger';
import { createAuthority, type Authority } from '@granary/testing/certificates';
import { describeWith } from '@granary/testing/stack';
import { prepareKafka } from '@granary/stack/kafka/broker';
import { brokerProperties, jvmOptions } from '@granary/stack/kafka/files';
import { classPath, formatData } from '@granary/stack/kafka/install';
import { fetchMetadata } from '@granary/stack/kafka/probe';
import { choosePorts } from '@granary/local/ports';
import { startProgram, untilReady } from '@granary/stack/programs/programs';
import { beginRun } from '@granary/stack/programs/runs';

const log = createLogger('test', 'silent');
const credentials = { username: 'granary', password: 'password-of-the-tests' };
const stops: Array<() => Promise<unknown>> = [];
let directory: string;
const authority = createAuthority('the authority of the brokers');
let securePort: number;

/** A broker whose second listener wants TLS, a client certificate and SCRAM. */
async function startSecureBroker(): Promise<void> {
  const run = await beginRun();
  stops.push(() => run.end());
  const installation = await prepareKafka(run, () => undefined);
  const [port = 0, controllerPort = 0, secure = 0] = await choosePorts(3);
  securePort = secure;
  const data = path.join(directory, 'data');
  await formatData(installation, { data, credentials });
  const inOneLine = (pem: string) => pem.replaceAll('\n', '\\n');
  const { cert, key } = authority.issue();
  const login = `required username="${credentials.username}" password="${credentials.password}"`;
  const properties = brokerProperties({ port, controllerPort, data, credentials })
    .replaceAll(/^((advertised\.)?listeners=.*)$/gm, `$1,SECURE://127.0.0.1:${securePort}`)
    .replace('map=BROKER:', 'map=SECURE:SASL_SSL,BROKER:');
  const ofListener = `listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule ${login};
listener.name.secure.ssl.client.auth=required
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.certificate.chain=${inOneLine(cert)}
listener.name.secure.ssl.keystore.key=${inOneLine(key)}
listener.name.secure.ssl.truststore.type=PEM
listener.name.secure.ssl.truststore.certificates=${inOneLine(authority.cert)}
`;
  const file = path.join(directory, 'server.properties');
  await writeFile(file, properties + ofListener, { mode: 0o600 });
  const { java, folder } = installation;
  const env = { PATH: process.env['PATH'], JAVA_HOME: process.env['JAVA_HOME'] };
  const args = [...jvmOptions, ...classPath, 'kafka.Kafka', file];
  const program = await startProgram(run, 'kafka', java.command, args, { cwd: folder, env });
  stops.push(() => program.stop(15_000));
  const probe = { port, credentials, timeoutMs: 1_000 };
  await untilReady(program, 180_000, () =>
    fetchMetadata(probe).then(
      ({ brokers }) => brokers > 0,
      () => false,
    ),
  );
}

const file = (name: string) => path.join(directory, 'client', name);

async function putFiles(trusted: Authority, own: Authority): Promise<void> {
  const { cert, key } = own.issue();
  const contents = { 'ca.crt': trusted.cert, 'tls.crt': cert, 'tls.key': key };
  await mkdir(path.join(directory, 'client'), { recursive: true });
  for (const [name, content] of Object.entries(contents)) await writeFile(file(name), content);
}

/** A client by the settings of a service. */
function client(settings: Record<string, string> = {}) {
  const config = readConfig(kafkaConfig, {
    KAFKA_BROKERS: `localhost:${securePort}`,
    KAFKA_TLS: 'true',
    KAFKA_TLS_CA_FILE: file('ca.crt'),
    KAFKA_TLS_CERT_FILE: file('tls.crt'),
    KAFKA_TLS_KEY_FILE: file('tls.key'),
    KAFKA_SASL_USERNAME: credentials.username,
    KAFKA_SASL_PASSWORD: credentials.password,
    ...settings,
  });
  return openKafka({ ...readBrokerOptions(config, log), clientId: 'test', log });
}

describeWith(describe, 'kafka')('Kafka with TLS', () => {
  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'granary-kafka-tls-'));
    stops.push(() => rm(directory, { recursive: true, force: true }));
    await startSecureBroker();
  });
  afterAll(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });

  test('is used by SCRAM over TLS with a client certificate, and each of the three is needed', async () => {
    await putFiles(authority, authority);
    expect(await client().createTopics(['made'], 1)).toEqual(['made']);
    expect(await client().ranges(['made'])).toEqual([{ topic: 'made', partition: 0, low: 0n, high: 0n }]);
    await expect(client({ KAFKA_SASL_PASSWORD: 'wrong' }).missingTopics([])).rejects.toThrow(/authentication/i);
    await putFiles(createAuthority(), authority);
    await expect(client().missingTopics([])).rejects.toThrow();
    await putFiles(authority, createAuthority());
    await expect(client().missingTopics([])).rejects.toThrow();
  });

  test('a client uses renewed files for its next connection', async () => {
    await putFiles(authority, createAuthority());
    const kafka = client();
    await expect(kafka.missingTopics([])).rejects.toThrow();
    await putFiles(authority, authority);
    expect(await kafka.missingTopics(['missing'])).toEqual(['missing']);
  });
});
