import { readFileSync } from 'node:fs';
import path from 'node:path';
import { databaseServices } from '@granary/local/start/constellation';
import { environments, type ServicesSettings } from './services';

const guide = readFileSync(path.join(__dirname, '../../../docs/operations/run.md'), 'utf8');

const settings: ServicesSettings = {
  databaseUrls: { data: 'd', blobs: 'b', finance: 'f', payments: 'p', tasks: 't' },
  directory: '/data',
  host: '127.0.0.1',
  port: 8080,
  ports: { data: 1, blobs: 2, finance: 3, payments: 4, tasks: 5, bytes: 6 },
  operatorKey: 'the key of the operator',
  internalSecret: 'a secret that no service gets to see',
  environment: {},
};
const sasl = { mechanism: 'scram-sha-512', username: 'granary', password: 'p' } as const;
const kafka = { brokers: ['127.0.0.1:9092'], sasl, topicPrefix: 'granary' };
const objectStore = { endpoint: 'http://127.0.0.1:9000', accessKey: 'a', secretKey: 's', bucket: 'granary' };

/** The settings of a service with one option or the other. */
function given(): Record<string, string[]> {
  const both = [environments(settings), environments({ ...settings, kafka, objectStore })];
  const services = [...databaseServices, 'gateway'] as const;
  return Object.fromEntries(
    services.map((name) => [name, [...new Set(both.flatMap((one) => Object.keys(one[name])))].sort()]),
  );
}

/** The same settings, from the table of the guide. */
function documented(): Record<string, string[]> {
  const [, section] = /\n## The real stack\n([^]*?)(?:\n## |$)/.exec(guide)!;
  const [, table] = /\n\| Service [^\n]*\n[^\n]*\n((?:\|[^\n]*\n)+)/.exec(section!)!;
  const found: Record<string, string[]> = {};
  let services: string[] = [];
  for (const line of table!.trim().split('\n')) {
    const [, whose = '', variables = ''] = line.split('|').map((cell) => cell.trim());
    if (whose !== '') services = whose === 'all but the gateway' ? [...databaseServices] : whose.split(', ');
    const names = [...variables.matchAll(/`([A-Z0-9_]+)`/g)].map(([, name]) => name!);
    for (const service of services) (found[service] ??= []).push(...names);
  }
  return Object.fromEntries(Object.entries(found).map(([service, names]) => [service, names.sort()]));
}

test('the guide lists exactly the settings that the stack passes to each service', () => {
  expect(documented()).toEqual(given());
});
