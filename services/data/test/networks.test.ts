import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { testDatabase } from '@granary/testing/database';
import { partsOf, seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { addressPrefixes, networkText, parseNetwork } from '../src/values/network';
import { newApp, startDataService } from './support/data-service';
import { addresses } from './support/network-reference';
import { startFixture, type Fixture } from './support/query-fixture';
import { seededRandom, type Random } from './support/random';

const textCount = size({ run: 5_000, long: 50_000 });

let fixture: Fixture;
let directory: string;
let file: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-networks-'));
  file = join(directory, 'networks.csv');
  await writeFile(file, 'network,country\n10.0.0.0/8,DE\n');
  fixture = await startFixture({ COUNTRY_NETWORKS_FILE: file });
});
afterAll(async () => {
  await fixture.stop();
  await rm(directory, { recursive: true, force: true });
});

/** Addresses, and what becomes of them by one to three changes. */
function almostAddresses(count: number, random: Random): string[] {
  const pick = <T>(choices: ArrayLike<T>): T => choices[random(choices.length)]!;
  return Array.from({ length: count }, () => {
    let text: string = pick(addresses);
    for (let changes = random(4); changes > 0; changes -= 1) {
      const at = random(text.length + 1);
      text = text.slice(0, at) + (random(3) > 0 ? pick('0123456789abfF.:/% ') : '') + text.slice(at + random(2));
    }
    return text;
  });
}

describe.each(partsOf('almost addresses', textCount))('$cases texts (seed $seed)', ({ seed, cases }) => {
  const random = seededRandom(seed);
  const texts = almostAddresses(cases, random);

  test('Postgres and Node agree on what an address is, and on which', async () => {
    const found = await fixture.pool.query<{ address: string | null; keyed: string | null }>(
      `select host(address_of(text)) as address, host(key_address(string_key(text))) as keyed
     from unnest($1::text[]) with ordinality as t (text, n) order by n`,
      [texts],
    );
    const canonical = (text: string | null) => {
      const network = text === null || text.includes('/') ? undefined : parseNetwork(text);
      return network && networkText(network);
    };
    const different = texts.filter((text, at) => {
      const { address, keyed } = found.rows[at]!;
      const isAddress = isIP(text) !== 0 && !text.includes('%');
      return (
        (address !== null) !== isAddress ||
        address !== keyed ||
        canonical(address) !== (isAddress ? canonical(text) : undefined)
      );
    });
    expect(different).toEqual([]);
    expect(found.rows.filter(({ address }) => address !== null).length).toBeGreaterThan(cases / 5);
  });

  test('every text of an address in some networks begins with one of their prefixes', async () => {
    const lists = Array.from({ length: 40 }, () =>
      Array.from({ length: 1 + random(3) }, () => {
        const network = parseNetwork(`${texts[random(texts.length)]!}/${8 + random(25)}`);
        return network?.family === 4 ? networkText(network) : '10.0.0.0/8';
      }),
    );
    let narrowed = 0;
    for (const networks of lists) {
      const prefixes = addressPrefixes(networks)!;
      const { rows } = await fixture.pool.query<{ text: string }>(
        'select text from unnest($1::text[]) text where address_of(text) <<= any($2::inet[])',
        [texts, networks],
      );
      expect(rows.filter(({ text }) => !prefixes.some((prefix) => text.startsWith(prefix)))).toEqual([]);
      narrowed += rows.length;
    }
    expect(narrowed).toBeGreaterThan(cases / 50);
    for (const networks of [['2001:db8::/32'], ['0.0.0.0/0'], ['10.0.0.0/8', '10.0.0.0/7']]) {
      expect(addressPrefixes(networks)).toBeUndefined();
    }
  });
});

const cidrSeed = seedOf('addresses with an index');

test(`CIDR finds the same with an index, which serves IPv4 networks of whole octets and smaller ones (seed ${cidrSeed})`, async () => {
  const app = await fixture.newApp();
  const ips = [...new Set([...addresses, ...almostAddresses(2_000, seededRandom(cidrSeed))])].filter((ip) =>
    ip.isWellFormed(),
  );
  for (const name of ['plain', 'keyed']) {
    await app.createCollection(name);
    await app.store(
      name,
      ips.map((ip, at) => JSON.stringify({ id: `${at}`, ip })),
    );
  }
  await app.createIndex('keyed', 'ip');
  const explain = async (find: object) => {
    const body = Buffer.from(JSON.stringify({ query: { find, count: 'none' } }));
    const { json } = await fixture.methods.explainQuery({ appId: app.appId, collection: 'keyed', body });
    const { indexes_used, hints } = JSON.parse(json.toString()) as { indexes_used: string[]; hints: unknown[] };
    return [indexes_used, hints.length];
  };
  for (const [CIDR, isServed] of [
    ['10.0.0.0/8', true],
    [['10.1.0.0/16', '192.168.1.0/24', '127.0.0.1'], true],
    ['172.16.0.0/12', true],
    ['::ffff:10.0.0.0/104', true],
    ['10.0.0.0/7', false],
    ['fe80::/10', false],
  ] as const) {
    const find = { ip: { CIDR } };
    const [plain, keyed] = await Promise.all(
      ['plain', 'keyed'].map((name) => app.list({ root: `${app.appId}::${name}`, find, limit: 10_000 })),
    );
    expect(keyed!.records).toEqual(plain!.records);
    expect([CIDR, await explain(find)]).toEqual([CIDR, isServed ? [['keyed_ip'], 0] : [[], 1]]);
  }
});

test('the key of no value but an address is one', async () => {
  const { rows } = await fixture.pool.query(
    `select value from unnest($1::text[]) value where key_address(sort_key(value::jsonb)) is not null`,
    [['null', '1', '-1', '167772161', 'true', '["10.0.0.1"]', '{"a":"10.0.0.1"}', '""', `"${'1'.repeat(300)}"`]],
  );
  expect(rows).toEqual([]);
});

test('a changed file of networks replaces the old one, all or nothing, and one that is not valid changes nothing', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  await app.store('c', ['{"id":"a","ip":"10.1.1.1"}', '{"id":"b","ip":"192.0.2.1"}', '{"id":"c","ip":"no"}']);
  const list = async (country: string) => {
    const page = await app.list({ root: `${app.appId}::c`, find: { ip: { inCountry: country } } });
    return page.records.map(({ id }) => id);
  };
  expect(await list('DE')).toEqual(['a']);
  await writeFile(file, 'this is no network');
  const lines = Array.from({ length: 25_000 }, (_, at) => `11.${at >> 8}.${at & 255}.0/24,${at % 2 ? 'FR' : 'IT'}`);
  await writeFile(file, [...lines, '192.0.2.0/24,DE'].join('\n'));
  await eventually(async () => (await list('DE')).join() === 'b');
  expect(await list('FR')).toEqual([]);
  await writeFile(file, '192.0.2.0/24,DEU');
  await writeFile(file, '192.0.2.0/24,FR');
  await eventually(async () => (await list('FR')).join() === 'b');
  const counted = await fixture.pool.query('select count(*)::int as ranges from country_range');
  expect(counted.rows).toEqual([{ ranges: 1 }]);
});

test('a start with a file that is missing or not valid fails and names the line; one without a file forgets the networks', async () => {
  const { url } = await testDatabase();
  const networks = join(directory, 'other.csv');
  const start = () => startDataService(url, { COUNTRY_NETWORKS_FILE: networks });
  await expect(start()).rejects.toThrow(/no such file/);
  await writeFile(networks, '10.0.0.0/8,DE\n10.0.0.0/40,DE');
  await expect(start()).rejects.toThrow('COUNTRY_NETWORKS_FILE: line 2 is not "network,country"');
  await writeFile(networks, '10.0.0.0/8,DE');
  await (await start()).stop();
  const without = await startDataService(url);
  const { appId } = await newApp(without);
  await without.methods.createCollection({ appId, name: 'c', schemaJson: '', readAccess: 'public' });
  const body = Buffer.from(JSON.stringify({ root: `${appId}::c`, find: { ip: { inCountry: 'DE' } } }));
  await expect(without.methods.listDocuments({ appId, body })).rejects.toMatchObject({
    reason: 'INVALID_QUERY',
    message: expect.stringContaining('COUNTRY_NETWORKS_FILE') as unknown,
  });
  await without.stop();
});
