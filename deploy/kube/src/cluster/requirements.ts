import { existsSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import os from 'node:os';
import { runChild } from '../child';
import type { Say } from '../say';

/** The package of Debian that has each command. */
const packageOf: Readonly<Record<string, string>> = {
  containerd: 'containerd',
  runc: 'runc',
  iptables: 'iptables',
  ip: 'iproute2',
  openssl: 'openssl',
  psql: 'postgresql-client',
  curl: 'curl',
  unshare: 'util-linux',
  nsenter: 'util-linux',
  setpriv: 'util-linux',
  flock: 'util-linux',
};
const commands = Object.keys(packageOf);
const networkPlugin = `${process.env.CNI_BIN ?? '/usr/lib/cni'}/bridge`;
const gigabyte = 1e9;
/** Free memory and room in the temporary folder that a cluster with all services takes. */
const memoryMin = 3 * gigabyte;
const diskMin = 2 * gigabyte;
const lockTimeoutS = 60;

/** The sentence that says why no cluster can run here, or undefined. Installs what is missing on Debian. */
export async function findObstacle(say: Say): Promise<string | undefined> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'A cluster needs Linux and root.';
  if ((await findMissing(['go'])).length > 0) return 'Kubernetes is compiled by Go 1.26 or newer (the command go).';
  return (await findScarcity()) ?? (await installCommands(say)) ?? (await findRefusal());
}

/** The sentence that says why no API server alone can run here, or undefined. Any user can start one. */
export async function findServerObstacle(): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'The API server of Kubernetes is run on Linux.';
  const missing = await findMissing(['bash', 'flock', 'go', 'openssl', 'setpriv']);
  return missing.length === 0 ? undefined : `These commands are missing for it: ${missing.join(', ')}.`;
}

async function findScarcity(): Promise<string | undefined> {
  const { bavail, bsize } = await statfs(os.tmpdir());
  const room = [
    { place: 'of free memory', bytes: os.freemem(), min: memoryMin },
    { place: `on the disk of ${os.tmpdir()}`, bytes: bavail * bsize, min: diskMin },
  ];
  const scarce = room.find(({ bytes, min }) => bytes < min);
  if (!scarce) return undefined;
  const { place, bytes, min } = scarce;
  return `A cluster needs ${min / gigabyte} GB ${place}; ${(bytes / gigabyte).toFixed(1)} GB are there.`;
}

async function installCommands(say: Say): Promise<string | undefined> {
  let missing = await findMissing(commands);
  let complaint = '';
  if (missing.length > 0 || !existsSync(networkPlugin)) {
    const packages = new Set(missing.flatMap((name) => packageOf[name] ?? []));
    if (!existsSync(networkPlugin)) packages.add('containernetworking-plugins');
    complaint = await installPackages([...packages], say);
    missing = await findMissing(commands);
  }
  if (missing.length > 0) return `These commands are missing for a cluster: ${missing.join(', ')}. ${complaint}`.trim();
  if (existsSync(networkPlugin)) return undefined;
  return `The network plugins are missing: ${networkPlugin}, or set CNI_BIN. ${complaint}`.trim();
}

async function findRefusal(): Promise<string | undefined> {
  const namespaces = ['--net', '--mount', '--pid', '--ipc', '--fork', '--mount-proc', 'true'];
  const { code, output } = await runChild('unshare', namespaces);
  return code === 0 ? undefined : `A cluster needs namespaces of its own, which are refused here: ${output.trim()}`;
}

async function findMissing(names: readonly string[]): Promise<string[]> {
  const look = `for name in ${names.join(' ')}; do command -v $name > /dev/null || echo $name; done`;
  return (await runChild('sh', ['-c', look])).output.split('\n').filter((name) => name !== '');
}

/** Installs packages. Returns what apt-get complains of, or an empty text. Removes no package that conflicts. */
async function installPackages(packages: readonly string[], say: Say): Promise<string> {
  if ((await findMissing(['apt-get'])).length > 0) return '';
  say(`installing ${packages.join(', ')}`);
  const install = (): Promise<string> => aptGet('install', '-y', '--no-install-recommends', '--no-remove', ...packages);
  if ((await install()) === '') return '';
  // The lists of packages may be missing or old.
  await aptGet('update');
  return install();
}

/** Runs apt-get. Returns the last lines that it prints if it fails, or an empty text. */
async function aptGet(...args: string[]): Promise<string> {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const { code, output } = await runChild('apt-get', ['-o', `DPkg::Lock::Timeout=${lockTimeoutS}`, ...args], { env });
  return code === 0 ? '' : `apt-get ${args[0]}: ${output.trim().split('\n').slice(-5).join('\n')}`;
}
