import { openKafka } from '@granary/shared/kafka/client';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import { outboxDefinition, outboxImplementation } from '@granary/shared/bus/outbox';
import { KafkaRelay } from '@granary/shared/bus/kafka-relay';
import { createSignal } from '@granary/shared/concurrency/signal';
import { openClient } from '@granary/shared/grpc/client';
import { createLogger } from '@granary/shared/logger';
import { createPool } from '@granary/shared/postgres/pool';
import { testSigner, testVerifier } from '@granary/testing/event-keys';
import { record } from './bus-world';

/** The work of a process that a test kills. */
export interface BusProcess {
  role: 'relay' | 'consumer';
  publisherUrl: string;
  subscriberUrl: string;
  /** Absent: the consumer reads the outbox. */
  kafka?: { place: BrokerOptions; prefix: string } | undefined;
}

/** A consumer is killed in the middle of its work: once it has had so many events, or after a while. */
const readyEvents = 1_000;
const readyMs = 4_000;

// A relay, or a copy of a consumer; it never ends by itself unless its parent does, or the consumer says that it must.
const { role, publisherUrl, subscriberUrl, kafka } = JSON.parse(process.argv[2]!) as BusProcess;
const log = createLogger(`bus-${role}`, process.env['BUS_TEST_LOG'] ?? 'silent');
const pool = (url: string) => createPool({ url, size: 4, applicationName: 'bus-process', log });
const publisher = pool(publisherUrl);
const bus = kafka && {
  kafka: openKafka({ ...kafka.place, clientId: 'bus-process', log }),
  prefix: kafka.prefix,
};

/** Reports to the parent that it may be killed. */
const ready = () => process.send!('ready');

if (role === 'relay') {
  new KafkaRelay({
    pool: publisher,
    log,
    bus: bus!,
    service: 'data',
    signer: testSigner,
    appended: createSignal(),
    leaseMs: 1_500,
  });
  ready();
} else {
  const { client: source } = openClient(
    outboxDefinition,
    { implementation: outboxImplementation({ pool: publisher, log, signer: testSigner }) },
    { log },
  );
  let events = 0;
  const consumer = startConsumer({
    pool: pool(subscriberUrl),
    log,
    bus,
    source,
    verifier: testVerifier,
    handle: (tx, event) => {
      events++;
      if (events === readyEvents) ready();
      return record(tx, event);
    },
    name: 'subscriber',
    from: 'data',
    topics: ['usage'],
    kafkaTimes: { sessionTimeoutMs: 3_000, sweepAfterMs: 15_000 },
  });
  consumer.failed.catch(() => process.exit(1));
  setTimeout(ready, readyMs);
}
process.on('disconnect', () => process.exit());
