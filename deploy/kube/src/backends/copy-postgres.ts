// Copies the cluster of a running Postgres, without its log, into an empty folder: <url> <folder>.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { baseBackup } from '@granary/operator/backup/base-backup';
import { Client, type ClientConfig } from 'pg';

async function copy(connectionString: string, folder: string): Promise<void> {
  // The type of the options lacks the member that makes this a connection for replication.
  const options: ClientConfig & { replication: string } = { connectionString, replication: 'true' };
  const client = new Client(options);
  await client.connect();
  const tar = spawn('tar', ['-x', '-C', folder], { stdio: ['pipe', 'inherit', 'inherit'] });
  const ended = once(tar, 'close') as Promise<[number | null]>;
  const [[code]] = await Promise.all([ended, pipeline(baseBackup(client, 'standby').archive, tar.stdin)]);
  await client.end();
  if (code !== 0) throw new Error(`tar ended with ${code}`);
}

const [url = '', target = ''] = process.argv.slice(2);
void copy(url, target);
