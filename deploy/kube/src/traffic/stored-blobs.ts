// Downloads the blobs of a file, `{id: checksum}`, and prints what is wrong with them, as a line of JSON.
import { readFileSync } from 'node:fs';
import { checksumOf } from './traffic-kinds';

const [url = '', key = '', app = '', file = ''] = process.argv.slice(2);
const connections = 8;
const blobs = Object.entries(JSON.parse(readFileSync(file, 'utf8')) as Record<string, string>);
const wrong: string[] = [];

async function compare(id: string, checksum: string): Promise<void> {
  const response = await fetch(`${url}/api/apps/${app}/blobs/files/${id}`, { headers: { 'x-app-key': key } });
  const bytes = Buffer.from(await response.arrayBuffer());
  if (response.status !== 200) wrong.push(`${id}: ${response.status} ${bytes.toString('utf8', 0, 200)}`);
  else if (checksumOf(bytes) !== checksum) wrong.push(`${id}: ${bytes.length} other bytes`);
}

async function compareNext(): Promise<void> {
  for (let next = blobs.pop(); next !== undefined; next = blobs.pop()) await compare(...next);
}

async function compareAll(): Promise<void> {
  await Promise.all(Array.from({ length: connections }, compareNext));
  console.log(JSON.stringify(wrong));
}

void compareAll();
