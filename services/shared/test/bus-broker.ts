import { spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { prepareKafka, startKafka, type Kafka } from '../../local/src/stack/kafka-broker';
import { beginRun } from '../../local/src/stack/runs';

/** A broker of a test's own. */
export interface TestBroker {
  /** host:port, the same for as long as it lives. */
  address: string;
  isUp(): boolean;
  /** Ends it like a power cut; what it had acknowledged stays. */
  kill(): Promise<void>;
  /** Brings it back on the same port and directory. */
  start(): Promise<void>;
  /** Takes away all that it has; it must not be running. */
  loseDisk(): Promise<void>;
  stop(): Promise<void>;
}

const found = (command: string, argument: string) => spawnSync(command, [argument], { stdio: 'ignore' }).status === 0;

/**
 * `describe`, or `describe.skip` on a machine without Java or Maven, and then this says so. Throws instead where nothing
 * may be skipped (REQUIRE_STACK=1).
 */
export function describeWithKafka(): typeof describe.skip {
  if (found('java', '-version') && found('mvn', '--version')) return describe;
  const message = 'Java 17 or Maven is missing';
  if (process.env['REQUIRE_STACK'] === '1') throw new Error(`${message}, and REQUIRE_STACK is 1`);
  console.warn(`${message}: tests that need Kafka are SKIPPED`);
  return describe.skip;
}

export async function kafkaForTests(): Promise<TestBroker> {
  const run = await beginRun();
  const installation = await prepareKafka(run, () => undefined);
  const directory = await mkdtemp(join(tmpdir(), `granary-test-${process.pid}-`));
  let kafka: Kafka = await startKafka(installation, { run, directory });
  const { port } = kafka;
  return {
    address: `127.0.0.1:${port}`,
    isUp: () => kafka.program.running(),
    kill: async () => {
      kafka.program.kill('SIGKILL');
      await kafka.program.ended;
    },
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
