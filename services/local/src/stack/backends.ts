import path from 'node:path';
import type { KafkaSasl } from '@granary/shared/kafka/client';
import { stopAll } from '@granary/shared/service/lifecycle';
import { databaseServices, type DatabaseService } from '../start/constellation';
import { startPostgres } from '../postgres/postgres';
import { requireTools } from './install';
import { prepareKafka, startKafka } from './kafka-broker';
import { forgetMinioAccess, keepMinioAccess } from './minio-access';
import { prepareMinio, startMinio } from './minio-server';
import type { LineSink, Program } from './programs';
import type { Run } from './runs';

export interface BackendsOptions {
  run: Run;
  dataDir: string;
  bus: 'postgres' | 'kafka';
  store: 'files' | 'minio';
  say: (line: string) => void;
  sink?: LineSink | undefined;
  signal?: AbortSignal | undefined;
  /** Is called when one of them has ended by itself. */
  onFailure: (error: Error) => void;
}

/** What the services stand on. */
export interface Backends {
  databaseUrls: Record<DatabaseService, string>;
  /** Absent: events go over Postgres. */
  kafka?: { brokers: string[]; sasl: KafkaSasl };
  /** Absent: objects are files. */
  objectStore?: { endpoint: string; accessKey: string; secretKey: string };
  /** What runs, for the person who starts; a container has no process id that would help. */
  parts: Part[];
  /** Ends the programs that belong to it. Kafka and MinIO before Postgres. */
  stop(): Promise<void>;
}

export interface Part {
  name: string;
  port: number;
  pid?: number;
}

/** Starts Postgres and, as the options say, Kafka and MinIO, each on a folder of the data directory. */
export async function startBackends(options: BackendsOptions): Promise<Backends> {
  const { run, dataDir, bus, store, say, sink, signal, onFailure } = options;
  // What takes minutes at the first time comes first, so that nothing runs meanwhile.
  await requireTools([
    ...(bus === 'kafka' ? (['kafka'] as const) : []),
    ...(store === 'minio' ? (['minio'] as const) : []),
  ]);
  const installation = bus === 'kafka' ? await prepareKafka(run, say, signal) : undefined;
  const minioProgram = store === 'minio' ? await prepareMinio(say, signal) : undefined;
  signal?.throwIfAborted();

  const stops: Array<() => Promise<void>> = [];
  const parts: Part[] = [];
  const started = (server: { program: Program; port: number; stop(): Promise<void> }): void => {
    stops.push(() => server.stop());
    parts.push({ name: server.program.name, port: server.port, pid: server.program.pid });
    server.program.whenFailed(onFailure);
  };
  try {
    const log = (text: string): void => sink?.('postgres', text);
    const postgres = await startPostgres({ dataDir, log: { info: log, warn: log }, onFailure });
    stops.push(() => postgres.stop());
    parts.push({ name: 'postgres', port: postgres.port, pid: postgres.postmasterPid() });
    const databaseUrls = {} as Record<DatabaseService, string>;
    for (const service of databaseServices) {
      databaseUrls[service] = await postgres.ensureDatabase(`granary_${service}`, `granary_${service}`);
    }
    const backends: Backends = { databaseUrls, parts, stop: () => stopAll(stops) };
    if (installation) {
      const kafka = await startKafka(installation, { run, sink, directory: path.join(dataDir, 'kafka') });
      started(kafka);
      backends.kafka = { brokers: kafka.brokers, sasl: { mechanism: 'scram-sha-512', ...kafka.credentials } };
    }
    if (minioProgram !== undefined) {
      const directory = path.join(dataDir, 'minio');
      const minio = await startMinio(minioProgram, { run, sink, directory });
      stops.push(() => forgetMinioAccess(directory));
      started(minio);
      await keepMinioAccess(directory, minio);
      backends.objectStore = minio;
    }
    return backends;
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}
