import type { KafkaInstallation } from '@granary/stack/kafka/install';
import { cpSync, existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child';
import type { Cluster } from '../cluster/cluster';
import { copyLibraries, libraryPath, loadImage } from './program-image';

const javaHome = '/usr/lib/java';
/** The parts of this machine's Java that are copied; the files for developers and for screens are left out. */
const javaParts = ['bin/java', 'conf', 'lib', 'release'];
const unused = /^lib\/(ct\.sym|src\.zip|lib(awt|javajpeg|jawt|jsound|lcms|fontmanager|mlib|splashscreen|atk).*)$/;
export const kafkaFolder = '/opt/kafka';
export const java = `${javaHome}/bin/java`;

/** Loads `registry.local/kafka:1`: Kafka as it is installed on this machine, with its Java. */
export async function loadKafka(
  cluster: Cluster,
  { installation, directory }: { installation: KafkaInstallation; directory: string },
): Promise<void> {
  const config = { Entrypoint: [java], Env: [libraryPath], WorkingDir: kafkaFolder };
  const fill = async (layer: string): Promise<void> => {
    await copyJava(layer, await findHome(installation.java.command));
    for (const name of ['jars', 'log4j2.properties']) {
      cpSync(path.join(installation.folder, name), path.join(layer, kafkaFolder, name), { recursive: true });
    }
  };
  await loadImage(cluster, { name: 'kafka', config, directory, fill });
}

async function findHome(command: string): Promise<string> {
  const { output } = await runChild(command, ['-XshowSettings:properties', '-version']);
  const [, home] = /^\s*java\.home = (\S+)$/m.exec(output) ?? [];
  if (home === undefined) throw new Error(`${command} does not say where it is installed:\n${output}`);
  return home;
}

async function copyJava(layer: string, home: string): Promise<void> {
  const isUsed = (file: string): boolean => existsSync(file) && !unused.test(path.relative(home, file));
  const target = path.join(layer, javaHome);
  for (const part of javaParts) {
    cpSync(path.join(home, part), path.join(target, part), { recursive: true, dereference: true, filter: isUsed });
  }
  const files = readdirSync(path.join(target, 'lib'), { recursive: true, encoding: 'utf8' });
  const libraries = files.filter((name) => name.endsWith('.so'));
  for (const name of ['bin/java', ...libraries.map((file) => `lib/${file}`)]) {
    await copyLibraries(layer, path.join(home, name), home);
  }
}
