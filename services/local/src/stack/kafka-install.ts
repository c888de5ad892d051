import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { exists } from '../postgres/system-user';
import { cacheFolder, installOnce, withLock } from './cache';
import { brokerProperties, jvmOptions, kafkaVersion, loggingProperties, pom, type BrokerPlace } from './kafka-files';
import { scramRecord, type KafkaCredentials } from './kafka-scram';
import { withProgress } from './progress';
import { findJava, findMaven, isWritable, runTool, type Java } from './tools';

/** What is needed to run a broker. */
export interface KafkaInstallation {
  java: Java;
  /** Holds `jars` and `log4j2.properties`. */
  folder: string;
  /** An archive of loaded classes for this Java; without one a start takes about a second more. */
  classArchive: string | undefined;
}

/** Starts a broker for a moment, on files in `folder`, so that the JVM archives the classes which that has loaded. */
export type Rehearsal = (installation: KafkaInstallation, archiveOption: string, folder: string) => Promise<void>;

/** The folder changes its name with everything that makes its content. */
const folderName = (): string => {
  const content = [pom, loggingProperties, brokerProperties(namelessPlace)].join('\n');
  return `kafka-${kafkaVersion}-${createHash('sha256').update(content).digest('hex').slice(0, 12)}`;
};
const namelessPlace: BrokerPlace = {
  ...{ port: 1, controllerPort: 2, data: 'data' },
  credentials: { username: 'nobody', password: '' },
};

/** Whether Kafka has been installed before, so that only Java is needed. */
export async function isKafkaInstalled(): Promise<boolean> {
  return exists(path.join(await cacheFolder(), folderName()));
}

/**
 * Puts Kafka into the cache when it is not there: its jars by Maven, checked against their checksums, from where the
 * machine's settings say. Throws a MissingToolError when Java or, at the first time, Maven is missing.
 */
export async function installKafka(
  rehearse: Rehearsal,
  say: (line: string) => void,
  signal?: AbortSignal,
): Promise<KafkaInstallation> {
  const java = await findJava();
  const folder = await installOnce(
    folderName(),
    async (staging) => {
      await findMaven();
      await writeFile(path.join(staging, 'pom.xml'), pom);
      await writeFile(path.join(staging, 'log4j2.properties'), loggingProperties);
      const fetched = ['dependency:copy-dependencies', '-DincludeScope=runtime', '-DoutputDirectory=jars'];
      const options = ['-B', '-ntp', '-q', '--strict-checksums', ...(await ownRepository(staging))];
      await withProgress(say, `Fetching Kafka ${kafkaVersion} by Maven (44 MiB, once)`, () =>
        runTool('mvn', [...options, ...fetched], { cwd: staging, signal }),
      );
      await rm(path.join(staging, 'repository'), { recursive: true, force: true });
    },
    signal,
  );
  const installation = { java, folder, classArchive: undefined };
  return { ...installation, classArchive: await archiveClasses(installation, rehearse, say, signal) };
}

/** The options by which the JVM finds Kafka; they are relative to the folder of the installation. */
export const classPath = ['-Dlog4j2.configurationFile=log4j2.properties', '-cp', 'jars/*'];

/**
 * Formats a data folder for a cluster of its own, with the credentials of its one user. They go to the tool in a file:
 * others can read the arguments of a process.
 */
export async function formatData(
  { java, folder }: KafkaInstallation,
  { data, credentials }: { data: string; credentials: KafkaCredentials },
  signal?: AbortSignal,
): Promise<void> {
  const staging = await mkdtemp(`${data}.`);
  try {
    const place = { port: 1, controllerPort: 2, data: path.join(staging, 'data'), credentials };
    const properties = path.join(staging, 'format.properties');
    await writeFile(properties, brokerProperties(place), { mode: 0o600 });
    const clusterId = randomBytes(16).toString('base64url');
    // With an equals sign, for an id may begin with a dash.
    const format = ['kafka.tools.StorageTool', 'format', `--cluster-id=${clusterId}`, '-c', properties];
    const args = [...jvmOptions, ...classPath, ...format, '--add-scram', scramRecord(credentials)];
    const file = path.join(staging, 'arguments');
    await writeFile(file, args.map(quoted).join('\n'), { mode: 0o600 });
    await runTool(java.command, [`@${file}`], { cwd: folder, signal });
    await rename(place.data, data);
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

/** An argument as Java reads it from a file. */
const quoted = (argument: string): string => `"${argument.replace(/[\\"]/g, '\\$&')}"`;

/** Maven keeps what it fetches in its own repository; a user who cannot have one gets one that is thrown away. */
async function ownRepository(staging: string): Promise<string[]> {
  const configured = `${process.env.MAVEN_OPTS ?? ''} ${process.env.MAVEN_ARGS ?? ''}`.includes('maven.repo.local');
  // Java goes by the home in the user database, not by HOME.
  if (configured || (await isWritable(path.join(os.userInfo().homedir, '.m2/repository')))) return [];
  return [`-Dmaven.repo.local=${path.join(staging, 'repository')}`];
}

/** An archive belongs to one Java: another one gets another file. An empty file says that this Java cannot make one. */
async function archiveClasses(
  installation: KafkaInstallation,
  rehearse: Rehearsal,
  say: (line: string) => void,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  const { java, folder } = installation;
  const archive = path.join(
    folder,
    `classes-${createHash('sha256').update(java.version).digest('hex').slice(0, 12)}.jsa`,
  );
  if (!(await exists(archive))) {
    await withLock(
      `${archive}.lock`,
      async () => {
        if (await exists(archive)) return;
        const staging = await mkdtemp(path.join(folder, 'rehearsal-'));
        const made = path.join(staging, 'classes.jsa');
        try {
          await rehearse(installation, `-XX:ArchiveClassesAtExit=${made}`, staging);
        } catch (error) {
          say(`Kafka will start a second later than it could: ${(error as Error).message}`);
        }
        if (!(await readdir(staging)).includes('classes.jsa')) await writeFile(made, '');
        await rename(made, archive);
        await rm(staging, { recursive: true, force: true });
      },
      signal,
    );
  }
  return (await stat(archive)).size > 0 ? archive : undefined;
}
