import { addSource } from '../../telemetry/metrics';
import { connectionSamples, poolFamilies, poolLabels } from '../pool-metrics';

/** What is read of a multiplexer. */
interface ObservedMultiplexer {
  counts(): { busy: number; idle: number; inFlight: number; waiting: number };
}

const families = [
  ...poolFamilies,
  {
    name: 'granary_pg_in_flight',
    help: 'Statements that Postgres has not answered yet.',
    labels: poolLabels,
    type: 'gauge' as const,
  },
];

/** Reports a multiplexer, whose connections carry several statements each, until the returned function is called. */
export function observeMultiplexer(name: string, multiplexer: ObservedMultiplexer): () => void {
  return addSource({
    families,
    collect: () => {
      const { busy, idle, inFlight, waiting } = multiplexer.counts();
      return {
        granary_pg_connections: connectionSamples(name, busy, idle),
        granary_pg_waiting: [[[name], waiting]],
        granary_pg_in_flight: [[[name], inFlight]],
      };
    },
  });
}
