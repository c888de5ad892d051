import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '@granary/local/postgres/system-user';
import { keptSecret } from '@granary/local/start/secrets';
import { choosePorts } from '@granary/local/ports';
import { brokerProperties, jvmOptions } from './files';
import { classPath, formatData, installKafka, type KafkaInstallation } from './install';
import { fetchMetadata, coordinatesGroups, type KafkaProbe } from './probe';
import type { KafkaCredentials } from './scram';
import { startProgram, untilReady, type LineSink, type Program } from '../programs/programs';
import type { Run } from '../programs/runs';

const readyTimeoutMs = 180_000;
const probeTimeoutMs = 1000;
const stopGraceMs = 15_000;

const username = 'granary';
const passwordFile = 'password';

export interface Kafka {
  /** `host:port`, for clients. */
  brokers: string[];
  port: number;
  credentials: KafkaCredentials;
  program: Program;
  /** Shuts the broker down cleanly. */
  stop(): Promise<void>;
}

export interface KafkaOptions {
  run: Run;
  /** Contains the broker's data and configuration; existing data is reused. */
  directory: string;
  /** A port to reuse after a restart; by default a free one. */
  port?: number;
  sink?: LineSink | undefined;
}

/** Installs Kafka if it is not in the cache, see `installKafka`. */
export function prepareKafka(run: Run, say: (line: string) => void, signal?: AbortSignal): Promise<KafkaInstallation> {
  const rehearse = async (installation: KafkaInstallation, option: string, folder: string): Promise<void> => {
    const kafka = await startKafka(installation, { run, directory: folder }, [option]);
    await kafka.stop();
  };
  return installKafka(rehearse, say, signal);
}

/**
 * Starts a single-node cluster on 127.0.0.1 and resolves when clients can use it. Its password is generated at the
 * first start and stored in the directory. A killed broker restarts with its data on the same directory and port. Data
 * from before passwords existed is deleted: the outboxes publish undelivered events again.
 */
export async function startKafka(
  installation: KafkaInstallation,
  options: KafkaOptions,
  moreJvmOptions: string[] = [],
): Promise<Kafka> {
  const { run, directory, sink } = options;
  const { java, folder, classArchive } = installation;
  await mkdir(directory, { recursive: true });
  const data = path.join(directory, 'data');
  if (!(await exists(path.join(directory, passwordFile)))) await rm(data, { recursive: true, force: true });
  const credentials = { username, password: await keptSecret(directory, passwordFile, '') };
  if (!(await exists(data))) await formatData(installation, { data, credentials });
  const [port = 0, controllerPort = 0] = options.port
    ? [options.port, ...(await choosePorts(1))]
    : await choosePorts(2);
  const properties = path.join(directory, 'server.properties');
  await writeFile(properties, brokerProperties({ port, controllerPort, data, credentials }), { mode: 0o600 });

  const archive = classArchive === undefined ? [] : [`-XX:SharedArchiveFile=${classArchive}`, '-Xshare:auto'];
  const args = [...jvmOptions, ...archive, ...moreJvmOptions, ...classPath, 'kafka.Kafka', properties];
  const env = { PATH: process.env.PATH, JAVA_HOME: process.env.JAVA_HOME };
  const program = await startProgram(run, 'kafka', java.command, args, { cwd: folder, env, sink });
  await untilReady(program, readyTimeoutMs, () =>
    isServing({ port, credentials, timeoutMs: probeTimeoutMs }).catch(() => false),
  );
  return { brokers: [`127.0.0.1:${port}`], port, credentials, program, stop: () => program.stop(stopGraceMs) };
}

async function isServing(probe: KafkaProbe): Promise<boolean> {
  const { brokers, controller } = await fetchMetadata(probe);
  return brokers > 0 && controller >= 0 && (await coordinatesGroups(probe));
}
