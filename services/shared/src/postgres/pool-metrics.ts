import type { Lane } from './multiplexer/multiplexer';
import type { Pool } from './pool';
import { addSource, type Sample, type Source } from '../telemetry/metrics';

const labels = ['pool'];
const families: Source['families'] = [
  {
    name: 'granary_pg_connections',
    help: 'Connections to Postgres, by what they do.',
    labels: [...labels, 'state'],
    type: 'gauge',
  },
  { name: 'granary_pg_waiting', help: 'What waits for a connection or a place on one.', labels, type: 'gauge' },
];

/** Has the connections of a pool counted until it ends. `name` is the application name that Postgres sees. */
export function observePool(name: string, pool: Pool): void {
  const remove = addSource({
    families,
    collect: () => {
      if (pool.ended) remove();
      return {
        granary_pg_connections: [
          [[name, 'busy'], pool.totalCount - pool.idleCount],
          [[name, 'idle'], pool.idleCount],
        ],
        granary_pg_waiting: [[[name], pool.waitingCount]],
      };
    },
  });
}

/** The same for a lane, whose connections carry several statements each. */
export function observeLane(name: string, lane: Lane): () => void {
  return addSource({
    families: [
      ...families,
      { name: 'granary_pg_in_flight', help: 'Statements that Postgres has not answered yet.', labels, type: 'gauge' },
    ],
    collect: () => {
      const { busy, idle, inFlight, waiting } = lane.counts();
      const connections: Sample[] = [
        [[name, 'busy'], busy],
        [[name, 'idle'], idle],
      ];
      return {
        granary_pg_connections: connections,
        granary_pg_waiting: [[[name], waiting]],
        granary_pg_in_flight: [[[name], inFlight]],
      };
    },
  });
}
