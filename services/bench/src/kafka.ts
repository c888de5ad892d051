import path from 'node:path';
import { prepareKafka, startKafka } from '@granary/local/stack/kafka-broker';
import { beginRun } from '@granary/local/stack/runs';
import { MissingToolError } from '@granary/local/stack/tools';
import { serve } from './child.mjs';

/** A Kafka of its own; it ends with this process. */
let run;
let kafka;

serve({
  /** Returns its address and process id, or `missing`, the reason why Kafka cannot run on this machine. */
  start: async (directory) => {
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
});
