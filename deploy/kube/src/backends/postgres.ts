import type { Binaries } from '@granary/local/postgres/binaries';
import type { ChildProcess } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Cluster } from '../cluster/cluster';
import { waitUntil } from '../waiting';

/** Any account that is not root. */
const user = { uid: 65534, gid: 65534 };
const copyProgram = path.join(__dirname, 'copy-postgres.js');
const slot = 'standby';
const readyTimeoutMs = 30_000;
const hba = [
  // These are addresses of this machine.
  'host all,replication postgres 10.99.0.0/29 trust',
  'host all all 10.0.0.0/8 scram-sha-256',
];

/** A Postgres, as the proofs use it. */
export interface Database {
  /** The URL of its superuser, without a database. */
  readonly url: string;
  /** Runs a statement, by default in the database `postgres`. Returns the only value, or the lines, of its result. */
  sql(text: string, database?: string): Promise<string>;
}

export interface PostgresOptions {
  programs: Binaries;
  /** The folder in which that of the server is made. */
  directory: string;
  address: string;
}

/** A Postgres beside the pods, at an address of its own in the network of the cluster. */
export class PostgresServer implements Database {
  readonly address: string;
  readonly programs: Binaries;
  readonly url: string;
  private readonly cluster: Cluster;
  private readonly folder: string;
  /** The data of the server. */
  private readonly files: string;
  private child: ChildProcess | undefined;

  constructor(cluster: Cluster, { programs, directory, address }: PostgresOptions) {
    this.cluster = cluster;
    this.programs = programs;
    this.address = address;
    this.url = `postgres://postgres@${address}:5432`;
    this.folder = path.join(directory, `postgres-${address}`);
    this.files = path.join(this.folder, 'cluster');
  }

  /** Starts it with an empty cluster. */
  async initialize(): Promise<void> {
    await this.makeFolder();
    const flags = ['--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C'];
    await this.cluster.run(...asUser, this.programs.initdb, '-D', this.files, ...flags);
    await this.start();
  }

  /** Starts it as a standby of `primary`, which then acknowledges only what is stored here too. */
  async follow(primary: PostgresServer): Promise<void> {
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
    await waitUntil('the standby is synchronous', async () => (await primary.sql(state)) === 'sync', readyTimeoutMs);
  }

  private async makeFolder(): Promise<void> {
    await this.cluster.run('ip', 'address', 'replace', `${this.address}/24`, 'dev', 'lan');
    rmSync(this.folder, { recursive: true, force: true });
    mkdirSync(this.folder);
    await this.cluster.run('chown', `${user.uid}:${user.gid}`, this.folder);
    writeFileSync(path.join(this.folder, 'hba'), `${hba.join('\n')}\n`);
  }

  private async start(): Promise<void> {
    const flags = {
      listen_addresses: this.address,
      unix_socket_directories: this.folder,
      hba_file: path.join(this.folder, 'hba'),
      max_connections: '300',
      // With this a server that is killed leaves nothing behind outside the folder.
      dynamic_shared_memory_type: 'mmap',
    };
    const settings = Object.entries(flags).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const command = ['unshare', '--ipc', ...asUser, this.programs.postgres, '-D', this.files, ...settings];
    this.child = this.cluster.start(`postgres-${this.address}`, command);
    await waitUntil(`Postgres at ${this.address} answers`, () => this.isReady(), readyTimeoutMs);
  }

  private async isReady(): Promise<boolean> {
    if (this.child?.exitCode !== null) throw new Error(`Postgres at ${this.address} has ended`);
    return this.sql('select 1').then(
      () => true,
      () => false,
    );
  }

  /** Makes this standby the primary. No other server follows it yet. */
  async promote(): Promise<void> {
    await this.sql('select pg_promote()');
  }

  sql(text: string, database?: string): Promise<string> {
    return runSql({ cluster: this.cluster, url: this.url }, text, database);
  }

  /** Sends a signal to all its processes: the first one, once it is killed or stopped, does not end the others. */
  signal(name: NodeJS.Signals): void {
    const first = this.child?.pid;
    if (first === undefined) throw new Error(`Postgres at ${this.address} was not started`);
    for (const pid of [first, ...childrenOf(first)]) {
      try {
        process.kill(pid, name);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
    }
  }

  /** Kills the server with all its processes. */
  async stop(): Promise<void> {
    const { child } = this;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    this.signal('SIGKILL');
    await ended;
  }
}

/** Runs a statement. Returns the only value, or the lines, of its result. */
export async function runSql(
  { cluster, url }: { cluster: Cluster; url: string },
  text: string,
  database = 'postgres',
): Promise<string> {
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

function childrenOf(parent: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
        return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent;
      } catch {
        // The process has ended meanwhile.
        return false;
      }
    })
    .map(Number);
}
