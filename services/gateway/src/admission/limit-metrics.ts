import type { Semaphore } from '@granary/shared/concurrency/semaphore';
import { addSource } from '@granary/shared/telemetry/metrics';
import type { Answers } from './answers';
import type { Bodies } from './bodies';
import type { RequestMemory } from './client-budget';
import type { Transfers } from './transfers';

export interface Limits {
  /** The slots of all requests except transfers of blobs, exports and imports. */
  slots: Semaphore;
  transfers: Transfers;
  memory: RequestMemory;
  bodies: Bodies;
  answers: Answers;
}

/** Exports the state of the limits at each scrape, until the function that it returns is called. */
export function exportLimitMetrics({ slots, transfers, memory: { budget }, bodies, answers }: Limits): () => void {
  return addSource({
    families: [
      { name: 'granary_admission_in_flight', help: 'Requests being processed.', labels: ['class'], type: 'gauge' },
      { name: 'granary_admission_queued', help: 'Requests in the queue.', labels: ['class'], type: 'gauge' },
      {
        name: 'granary_admission_limit',
        help: 'Requests that may be processed concurrently.',
        labels: ['class'],
        type: 'gauge',
      },
      {
        name: 'granary_body_budget_used_bytes',
        help: 'Bytes of request bodies and large answers in memory.',
        labels: [],
        type: 'gauge',
      },
      {
        name: 'granary_body_budget_limit_bytes',
        help: 'Limit of the bytes of request bodies and large answers in memory.',
        labels: [],
        type: 'gauge',
      },
      { name: 'granary_waiting_bodies', help: 'Requests whose body has not arrived.', labels: [], type: 'gauge' },
      {
        name: 'granary_waiting_bodies_limit',
        help: 'Limit of the requests whose body has not arrived.',
        labels: [],
        type: 'gauge',
      },
      { name: 'granary_unsent_answers', help: 'Answers that clients have not read.', labels: [], type: 'gauge' },
      {
        name: 'granary_slow_clients_total',
        help: 'Bodies and transfers refused, and answers cut off, because they were too slow or were evicted for others.',
        labels: ['direction', 'reason'],
        type: 'counter',
      },
    ],
    collect: () => {
      const { held: inside, waiting, limit } = slots.counts();
      const classes = [
        ['requests', { inside, waiting, limit }],
        ['uploads', transfers.uploadPlaces.counts()],
        ['downloads', transfers.downloadPlaces.counts()],
        ['exports', transfers.exportPlaces.counts()],
        ['imports', transfers.importPlaces.counts()],
      ] as const;
      const [bodyCounts, answerCounts] = [bodies.counts(), answers.counts()];
      return {
        granary_admission_in_flight: classes.map(([name, counts]) => [[name], counts.inside]),
        granary_admission_queued: classes.map(([name, counts]) => [[name], counts.waiting]),
        granary_admission_limit: classes.map(([name, counts]) => [[name], counts.limit]),
        granary_body_budget_used_bytes: [[[], budget.counts().used]],
        granary_body_budget_limit_bytes: [[[], budget.counts().total]],
        granary_waiting_bodies: [[[], bodyCounts.waiting]],
        granary_waiting_bodies_limit: [[[], bodyCounts.limit]],
        granary_unsent_answers: [[[], answerCounts.unsent]],
        granary_slow_clients_total: [
          [['body', 'too_slow'], bodyCounts.tooSlow],
          [['body', 'evicted'], bodyCounts.evicted],
          [['answer', 'too_slow'], answerCounts.tooSlow],
          [['answer', 'evicted'], answerCounts.evicted],
          ...slowTransfers(transfers),
        ],
      };
    },
  });
}

const slowTransfers = (transfers: Transfers) =>
  [
    [['upload', 'too_slow'], transfers.counts().slowUploads],
    [['upload', 'evicted'], transfers.uploadPlaces.counts().evicted],
    [['download', 'too_slow'], transfers.counts().slowDownloads],
    [['download', 'evicted'], transfers.downloadPlaces.counts().evicted],
    [['export', 'too_slow'], transfers.counts().slowExports],
    [['export', 'evicted'], transfers.exportPlaces.counts().evicted],
    [['import', 'too_slow'], transfers.counts().slowImports],
    [['import', 'evicted'], transfers.importPlaces.counts().evicted],
  ] as const;
