import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import { prepareKafka, startKafka, type Kafka } from '../../../local/src/stack/kafka-broker';
import { beginRun } from '../../../local/src/stack/runs';

/** A broker of a test's own. */
export interface TestBroker {
  /** Where it is, and with what credentials: the same for as long as it lives. */
  place: BrokerOptions;
  isUp(): boolean;
  /** Ends it like a power cut; what it had acknowledged stays. */
  kill(): Promise<void>;
  /** Keeps it from running, while its connections stay open, until it is resumed. */
  freeze(): void;
  resume(): void;
  /** Brings it back on the same port and directory. */
  start(): Promise<void>;
  /** Takes away all that it has; it must not be running. */
  loseDisk(): Promise<void>;
  stop(): Promise<void>;
}

/** A Kafka of its own for a test, so that it may be harmed. */
export async function startOwnKafka(): Promise<TestBroker> {
  const run = await beginRun();
  const installation = await prepareKafka(run, () => undefined);
  const directory = await mkdtemp(join(tmpdir(), `granary-test-${process.pid}-`));
  let kafka: Kafka = await startKafka(installation, { run, directory });
  const { port } = kafka;
  return {
    place: { brokers: [`127.0.0.1:${port}`], sasl: { mechanism: 'scram-sha-512', ...kafka.credentials } },
    isUp: () => kafka.program.running(),
    kill: async () => {
      kafka.program.kill('SIGKILL');
      await kafka.program.ended;
    },
    freeze: () => kafka.program.kill('SIGSTOP'),
    resume: () => kafka.program.kill('SIGCONT'),
    start: async () => {
      kafka = await startKafka(installation, { run, directory, port });
    },
    loseDisk: () => rm(join(directory, 'data'), { recursive: true }),
    stop: async () => {
      await kafka.stop();
      await rm(directory, { recursive: true, force: true });
      await run.end();
    },
  };
}
