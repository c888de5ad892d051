import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually } from './eventually.mjs';

/** Any account that is not root. */
export const user = { uid: 65534, gid: 65534 };
const copyProgram = path.join(path.dirname(fileURLToPath(import.meta.url)), 'copy-postgres.mjs');
const slot = 'standby';
const readyTimeoutMs = 30_000;
const hba = [
  // Addresses of this machine.
  'host all,replication postgres 10.99.0.0/29 trust',
  'host all all 10.0.0.0/8 scram-sha-256',
];

/** A Postgres beside the pods, at an address of its own in the network of the cluster. */
export class PostgresServer {
  /** `directory` is where a folder for it is made. */
  constructor(cluster, { programs, directory, address }) {
    Object.assign(this, { cluster, programs, address });
    this.url = `postgres://postgres@${address}:5432`;
    this.folder = path.join(directory, `postgres-${address}`);
  }

  /** Starts it with an empty cluster. */
  async initialize() {
    await this.makeFolder();
    const flags = ['--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C'];
    await this.cluster.run(...asUser, this.programs.initdb, '-D', this.files, ...flags);
    await this.start();
  }

  /** Starts it as a standby of `primary`, which then acknowledges only what is stored here too. */
  async follow(primary) {
    await this.makeFolder();
    await primary.sql(`select pg_create_physical_replication_slot('${slot}', true)`);
    mkdirSync(this.files);
    await this.cluster.run(process.execPath, copyProgram, `${primary.url}/postgres`, this.files);
    const source = `host=${primary.address} user=postgres application_name=standby`;
    const settings = [`primary_conninfo = '${source}'`, `primary_slot_name = '${slot}'`];
    writeFileSync(path.join(this.files, 'postgresql.auto.conf'), `${settings.join('\n')}\n`);
    writeFileSync(path.join(this.files, 'standby.signal'), '');
    chmodSync(this.files, 0o700);
    await this.cluster.run('chown', '-R', `${user.uid}:${user.gid}`, this.files);
    await this.start();
    await primary.sql(`alter system set synchronous_standby_names = '*'`);
    await primary.sql('select pg_reload_conf()');
    const state = `select sync_state from pg_stat_replication`;
    await eventually('the standby is synchronous', async () => (await primary.sql(state)) === 'sync', readyTimeoutMs);
  }

  async makeFolder() {
    await this.cluster.run('ip', 'address', 'replace', `${this.address}/24`, 'dev', 'lan');
    rmSync(this.folder, { recursive: true, force: true });
    mkdirSync(this.folder);
    await this.cluster.run('chown', `${user.uid}:${user.gid}`, this.folder);
    this.files = path.join(this.folder, 'cluster');
    writeFileSync(path.join(this.folder, 'hba'), `${hba.join('\n')}\n`);
  }

  async start() {
    const flags = {
      listen_addresses: this.address,
      unix_socket_directories: this.folder,
      hba_file: path.join(this.folder, 'hba'),
      max_connections: '300',
      // Nothing outside the folder is left of one that is killed.
      dynamic_shared_memory_type: 'mmap',
    };
    const settings = Object.entries(flags).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const command = ['unshare', '--ipc', ...asUser, this.programs.postgres, '-D', this.files, ...settings];
    this.child = this.cluster.start(`postgres-${this.address}`, command);
    await eventually(`Postgres at ${this.address} answers`, () => this.isReady(), readyTimeoutMs);
  }

  async isReady() {
    if (this.child.exitCode !== null) throw new Error(`Postgres at ${this.address} has ended`);
    return this.sql('select 1').then(
      () => true,
      () => false,
    );
  }

  /** Makes a standby the primary, which no other follows yet. */
  async promote() {
    await this.sql('select pg_promote()');
  }

  sql(text, database) {
    return runSql(this, text, database);
  }

  /** Sends a signal to all its processes, the first of which is not there to see that others have ended. */
  signal(name) {
    for (const pid of [this.child.pid, ...childrenOf(this.child.pid)]) {
      try {
        process.kill(pid, name);
      } catch (error) {
        if (error.code !== 'ESRCH') throw error;
      }
    }
  }

  async stop(signal = 'SIGINT') {
    if (this.child === undefined || this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    if (signal === 'SIGKILL') this.signal(signal);
    else this.child.kill(signal);
    await ended;
  }
}

/** The only value, or the lines, of what a statement returns. */
export async function runSql({ cluster, url }, text, database = 'postgres') {
  const flags = ['-X', '-A', '-t', '-q', '-v', 'ON_ERROR_STOP=1'];
  return (await cluster.run('psql', ...flags, '-c', text, `${url}/${database}`)).trim();
}

const asUser = [
  'setpriv',
  '--pdeathsig=KILL',
  `--reuid=${user.uid}`,
  `--regid=${user.gid}`,
  '--clear-groups',
  'env',
  '--chdir=/',
];

function childrenOf(parent) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
        return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent;
      } catch {
        // It has ended meanwhile.
        return false;
      }
    })
    .map(Number);
}
