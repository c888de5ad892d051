// Copies the cluster of a running Postgres, without its log, into an empty folder: <url> <folder>.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { baseBackup } from '@granary/operator/backup/base-backup';
import pg from 'pg';

const [connectionString, folder] = process.argv.slice(2);
const client = new pg.Client({ connectionString, replication: 'true' });
await client.connect();
const tar = spawn('tar', ['-x', '-C', folder], { stdio: ['pipe', 'inherit', 'inherit'] });
const [[code]] = await Promise.all([once(tar, 'close'), pipeline(baseBackup(client, 'standby').archive, tar.stdin)]);
await client.end();
if (code !== 0) throw new Error(`tar ended with ${code}`);
