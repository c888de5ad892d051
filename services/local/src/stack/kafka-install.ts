import { createHash, randomBytes } from 'node:crypto';
import { cp, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { exists } from '../postgres/system-user';
import { cacheFolder, installOnce, withLock } from './cache';
import { brokerProperties, jvmOptions, kafkaVersion, loggingProperties, pom, type BrokerPlace } from './kafka-files';
import { withProgress } from './progress';
import { findJava, findMaven, isWritable, runTool, type Java } from './tools';

/** What is needed to run a broker. */
export interface KafkaInstallation {
  java: Java;
  /** Holds `jars`, `log4j2.properties` and the formatted, empty data folder `template`. */
  folder: string;
  /** An archive of loaded classes for this Java; without one a start takes about a second more. */
  classArchive: string | undefined;
}

/** Starts a broker for a moment, on files in `folder`, so that the JVM archives the classes which that has loaded. */
export type Rehearsal = (installation: KafkaInstallation, archiveOption: string, folder: string) => Promise<void>;

/** The folder changes its name with everything that makes its content. */
const folderName = (): string => {
  const content = [pom, loggingProperties, brokerProperties(templatePlace)].join('\n');
  return `kafka-${kafkaVersion}-${createHash('sha256').update(content).digest('hex').slice(0, 12)}`;
};
const templatePlace: BrokerPlace = { port: 1, controllerPort: 2, data: 'template' };
/** Stands in the template; each copy gets ids of its own. */
const templateClusterId = 'AAAAAAAAQACAAAAAAAAAAA';

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
      await writeFile(path.join(staging, 'format.properties'), brokerProperties(templatePlace));
      const fetched = ['dependency:copy-dependencies', '-DincludeScope=runtime', '-DoutputDirectory=jars'];
      const options = ['-B', '-ntp', '-q', '--strict-checksums', ...(await ownRepository(staging))];
      await withProgress(say, `Fetching Kafka ${kafkaVersion} by Maven (44 MiB, once)`, () =>
        runTool('mvn', [...options, ...fetched], { cwd: staging, signal }),
      );
      const format = ['kafka.tools.StorageTool', 'format', '-t', templateClusterId, '-c', 'format.properties'];
      await runTool(java.command, [...jvmOptions, ...classPath, ...format], { cwd: staging, signal });
      await rm(path.join(staging, 'repository'), { recursive: true, force: true });
    },
    signal,
  );
  const installation = { java, folder, classArchive: undefined };
  return { ...installation, classArchive: await archiveClasses(installation, rehearse, say, signal) };
}

/** The options by which the JVM finds Kafka; they are relative to the folder of the installation. */
export const classPath = ['-Dlog4j2.configurationFile=log4j2.properties', '-cp', 'jars/*'];

/** Makes a data folder that is formatted like the template, as a cluster of its own. */
export async function formatData(installation: KafkaInstallation, data: string): Promise<void> {
  const staging = await mkdtemp(`${data}.`);
  try {
    await cp(path.join(installation.folder, 'template'), staging, { recursive: true });
    const newId = (): string => randomBytes(16).toString('base64url');
    await writeFile(
      path.join(staging, 'meta.properties'),
      ['version=1', 'node.id=1', `cluster.id=${newId()}`, `directory.id=${newId()}`, ''].join('\n'),
    );
    await rename(staging, data);
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

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
