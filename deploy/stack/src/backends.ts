import path from 'node:path';
import type { KafkaSasl } from '@granary/shared/kafka/broker-options';
import { stopAll } from '@granary/shared/service/lifecycle';
import { databaseServices, type DatabaseService } from '@granary/local/start/constellation';
import { startPostgres } from '@granary/local/postgres/postgres';
import { requireTools } from './install';
import { prepareKafka, startKafka } from './kafka/broker';
import { forgetMinioAccess, keepMinioAccess } from './minio/access';
import { prepareMinio, startMinio } from './minio/server';
import type { LineSink, Program } from './programs/programs';
import type { Run } from './programs/runs';

export interface BackendsOptions {
  run: Run;
  dataDir: string;
  bus: 'postgres' | 'kafka';
  store: 'files' | 'minio';
  say: (line: string) => void;
  sink?: LineSink | undefined;
  signal?: AbortSignal | undefined;
  /** Called when one of the programs ends by itself. */
  onFailure: (error: Error) => void;
}

/** The infrastructure of the services. */
export interface Backends {
  databaseUrls: Record<DatabaseService, string>;
  /** Absent: events are sent over Postgres. */
  kafka?: { brokers: string[]; sasl: KafkaSasl };
  /** Absent: objects are files. */
  objectStore?: { endpoint: string; accessKey: string; secretKey: string };
  /** The running programs, for the ready message; containers have no useful process id. */
  parts: Part[];
  /** Stops the programs: Kafka and MinIO before Postgres. */
  stop(): Promise<void>;
}

export interface Part {
  name: string;
  port: number;
  pid?: number;
}

/** Starts Postgres and, depending on the options, Kafka and MinIO, each in a folder of the data directory. */
export async function startBackends(options: BackendsOptions): Promise<Backends> {
  const { run, dataDir, bus, store, say, sink, signal, onFailure } = options;
  // Installations can take minutes, so they come before anything is started.
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
