import path from 'node:path';
import { prepareKafka, startKafka, type Kafka } from '@granary/stack/kafka/broker';
import { beginRun, type Run } from '@granary/stack/programs/runs';
import { MissingToolError } from '@granary/stack/tools/tools';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import { serve } from './child';

/** The Kafka of the benchmark, which ends with this process. */
let run: Run | undefined;
let kafka: Kafka | undefined;

/** How clients reach a Kafka, and its process id; or why it cannot run on this machine. */
export type KafkaStart = { place: BrokerOptions; pid: number } | { missing: string };

const calls = {
  /** Returns its address and process id, or `missing`, the reason why Kafka cannot run on this machine. */
  start: async (directory: string): Promise<KafkaStart> => {
    run = await beginRun();
    try {
      const installation = await prepareKafka(run, (line) => console.error(line));
      kafka = await startKafka(installation, { run, directory: path.join(directory, 'kafka') });
      return {
        place: { brokers: kafka.brokers, sasl: { mechanism: 'scram-sha-512', ...kafka.credentials } },
        pid: kafka.program.pid,
      };
    } catch (error) {
      if (error instanceof MissingToolError) return { missing: error.message };
      throw error;
    }
  },
  stop: async () => {
    await kafka?.stop();
    await run?.end();
  },
};

export type KafkaCalls = typeof calls;

serve(calls);
