import { cpSync, existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';
import { copyLibraries, libraryPath, loadImage } from './program-image.mjs';

const javaHome = '/usr/lib/java';
/** Of the Java of this machine; what is for developers and screens is left out. */
const javaParts = ['bin/java', 'conf', 'lib', 'release'];
const unused = /^lib\/(ct\.sym|src\.zip|lib(awt|javajpeg|jawt|jsound|lcms|fontmanager|mlib|splashscreen|atk).*)$/;
export const kafkaFolder = '/opt/kafka';
export const java = `${javaHome}/bin/java`;

/** Loads `registry.local/kafka:1`: Kafka as it is installed on this machine, with its Java. */
export async function loadKafka(cluster, { installation, directory }) {
  const config = { Entrypoint: [java], Env: [libraryPath], WorkingDir: kafkaFolder };
  const fill = async (layer) => {
    await copyJava(layer, await findHome(installation.java.command));
    for (const name of ['jars', 'log4j2.properties']) {
      cpSync(path.join(installation.folder, name), path.join(layer, kafkaFolder, name), { recursive: true });
    }
  };
  await loadImage(cluster, { name: 'kafka', config, directory, fill });
}

async function findHome(command) {
  const { output } = await runChild(command, ['-XshowSettings:properties', '-version']);
  const [, home] = /^\s*java\.home = (\S+)$/m.exec(output) ?? [];
  if (home === undefined) throw new Error(`${command} does not say where it is installed:\n${output}`);
  return home;
}

async function copyJava(layer, home) {
  const isUsed = (file) => existsSync(file) && !unused.test(path.relative(home, file));
  const target = path.join(layer, javaHome);
  for (const part of javaParts) {
    cpSync(path.join(home, part), path.join(target, part), { recursive: true, dereference: true, filter: isUsed });
  }
  const files = readdirSync(path.join(target, 'lib'), { recursive: true }).filter((name) => name.endsWith('.so'));
  for (const name of ['bin/java', ...files.map((file) => `lib/${file}`)]) {
    await copyLibraries(layer, path.join(home, name), home);
  }
}
