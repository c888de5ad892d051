import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import { prepareKafka, startKafka, type Kafka } from '@granary/stack/kafka/broker';
import { beginRun } from '@granary/stack/programs/runs';

/** The broker of one test. */
export interface TestBroker {
  /** Its address and credentials, which never change. */
  place: BrokerOptions;
  isUp(): boolean;
  /** Kills it like a power cut; what it had acknowledged stays. */
  kill(): Promise<void>;
  /** Suspends it, with open connections, until it is resumed. */
  freeze(): void;
  resume(): void;
  /** Restarts it on the same port and directory. */
  start(): Promise<void>;
  /** Deletes all its data; it must not be running. */
  loseDisk(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts a Kafka for one test, which may damage it. */
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
