import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { exists } from '@granary/local/postgres/system-user';
import { cacheFolder, installOnce, withLock } from '../tools/cache';
import { brokerProperties, jvmOptions, kafkaVersion, loggingProperties, pom, type BrokerPlace } from './files';
import { scramRecord, type KafkaCredentials } from './scram';
import { withProgress } from '@granary/local/start/progress';
import { findJava, findMaven, isWritable, runTool, type Java } from '../tools/tools';

/** An installed Kafka. */
export interface KafkaInstallation {
  java: Java;
  /** Contains `jars` and `log4j2.properties`. */
  folder: string;
  /** A class data sharing archive for this Java; a start without one takes about a second more. */
  classArchive: string | undefined;
}

/** Starts a broker briefly on files in `folder`, so that the JVM archives the classes that it loads. */
export type Rehearsal = (installation: KafkaInstallation, archiveOption: string, folder: string) => Promise<void>;

/** The folder name is a hash of everything that determines its contents. */
const folderName = (): string => {
  const content = [pom, loggingProperties, brokerProperties(namelessPlace)].join('\n');
  return `kafka-${kafkaVersion}-${createHash('sha256').update(content).digest('hex').slice(0, 12)}`;
};
const namelessPlace: BrokerPlace = {
  port: 1,
  controllerPort: 2,
  data: 'data',
  credentials: { username: 'nobody', password: '' },
};

/** Whether Kafka is installed, so that only Java is needed. */
export async function isKafkaInstalled(): Promise<boolean> {
  return exists(path.join(await cacheFolder(), folderName()));
}

/**
 * Installs Kafka into the cache if it is missing: Maven downloads its jars, verified by checksum, from the repositories
 * in the machine's settings. Throws a MissingToolError if Java or, for the first installation, Maven is missing.
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

/** The JVM options for Kafka's class path, relative to the installation folder. */
export const classPath = ['-Dlog4j2.configurationFile=log4j2.properties', '-cp', 'jars/*'];

/**
 * Formats the data folder of a new cluster with the credentials of its only user. They are passed in a file: other
 * users can read the arguments of a process.
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
    // The option has an equals sign, because an id may begin with a dash.
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

/** An argument in the format of Java's argument files. */
const quoted = (argument: string): string => `"${argument.replace(/[\\"]/g, '\\$&')}"`;

/** Maven stores downloads in the user's repository; a user without a writable one gets a temporary repository. */
async function ownRepository(staging: string): Promise<string[]> {
  const configured = `${process.env.MAVEN_OPTS ?? ''} ${process.env.MAVEN_ARGS ?? ''}`.includes('maven.repo.local');
  // Java uses the home in the user database, not HOME.
  if (configured || (await isWritable(path.join(os.userInfo().homedir, '.m2/repository')))) return [];
  return [`-Dmaven.repo.local=${path.join(staging, 'repository')}`];
}

/** Each Java version has its own archive. An empty file records that this Java cannot create one. */
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
          say(
            `Kafka starts without a class data sharing archive, which takes a second more: ${(error as Error).message}`,
          );
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
