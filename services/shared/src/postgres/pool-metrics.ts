import { addSource, type Sample, type Source } from '../telemetry/metrics';

/** The members of a pool of `pg` that are read for metrics. */
interface ObservedPool {
  readonly ended: boolean;
  readonly totalCount: number;
  readonly idleCount: number;
  readonly waitingCount: number;
}

/** The member of a multiplexer that is read for metrics. */
interface ObservedMultiplexer {
  counts(): { busy: number; idle: number; inFlight: number; waiting: number };
}

const labels = ['pool'];
const families: Source['families'] = [
  {
    name: 'granary_pg_connections',
    help: 'Connections to Postgres, by state.',
    labels: [...labels, 'state'],
    type: 'gauge',
  },
  {
    name: 'granary_pg_waiting',
    help: 'Requests waiting for a connection, or for capacity on a pipelined one.',
    labels,
    type: 'gauge',
  },
];

/** Reports the connections of a pool until it ends. `name` is the application name that Postgres sees. */
export function observePool(name: string, pool: ObservedPool): void {
  const remove = addSource({
    families,
    collect: () => {
      if (pool.ended) remove();
      const { totalCount, idleCount, waitingCount } = pool;
      return {
        granary_pg_connections: connections(name, totalCount - idleCount, idleCount),
        granary_pg_waiting: [[[name], waitingCount]],
      };
    },
  });
}

/** Reports a multiplexer, whose connections carry several statements each, until the returned function is called. */
export function observeMultiplexer(name: string, multiplexer: ObservedMultiplexer): () => void {
  return addSource({
    families: [
      ...families,
      { name: 'granary_pg_in_flight', help: 'Statements that Postgres has not answered yet.', labels, type: 'gauge' },
    ],
    collect: () => {
      const { busy, idle, inFlight, waiting } = multiplexer.counts();
      return {
        granary_pg_connections: connections(name, busy, idle),
        granary_pg_waiting: [[[name], waiting]],
        granary_pg_in_flight: [[[name], inFlight]],
      };
    },
  });
}

const connections = (name: string, busy: number, idle: number): Sample[] => [
  [[name, 'busy'], busy],
  [[name, 'idle'], idle],
];
