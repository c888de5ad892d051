import { addSource, type Sample, type Source } from '../telemetry/metrics';

/** What is read of a pool of `pg`. */
interface ObservedPool {
  readonly ended: boolean;
  readonly totalCount: number;
  readonly idleCount: number;
  readonly waitingCount: number;
}

export const poolLabels = ['pool'];
export const poolFamilies: Source['families'] = [
  {
    name: 'granary_pg_connections',
    help: 'Connections to Postgres, by what they do.',
    labels: [...poolLabels, 'state'],
    type: 'gauge',
  },
  {
    name: 'granary_pg_waiting',
    help: 'What waits for a connection or a place on one.',
    labels: poolLabels,
    type: 'gauge',
  },
];

export function connectionSamples(name: string, busy: number, idle: number): Sample[] {
  return [
    [[name, 'busy'], busy],
    [[name, 'idle'], idle],
  ];
}

/** Reports the connections of a pool until it ends. `name` is the application name that Postgres sees. */
export function observePool(name: string, pool: ObservedPool): void {
  const remove = addSource({
    families: poolFamilies,
    collect: () => {
      if (pool.ended) remove();
      const { totalCount, idleCount, waitingCount } = pool;
      return {
        granary_pg_connections: connectionSamples(name, totalCount - idleCount, idleCount),
        granary_pg_waiting: [[[name], waitingCount]],
      };
    },
  });
}
