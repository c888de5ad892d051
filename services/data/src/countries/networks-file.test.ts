import { runToCompletion } from '@granary/shared/concurrency/time-slicing';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { addressText, lastOf, parseNetwork } from '../values/network';
import { seededRandom } from '../../test/support/random';
import { readNetworksFile } from './networks-file';

const fileCount = size({ run: 20, long: 200 });

const read = (text: string): string[] =>
  runToCompletion(readNetworksFile(text)).map(
    ({ family, first, last, country }) => `${addressText(family, first)}-${addressText(family, last)} ${country}`,
  );

test('a file may have a heading, comments, quotes, spaces, Windows line ends and no last line end', () => {
  const text =
    '\ufeffnetwork,country\r\n# a comment\r\n"192.0.2.0/24","de"\r\n\r\n 198.51.100.7 , FR\r\n2001:db8::/32,US';
  expect(read(text)).toEqual([
    '192.0.2.0-192.0.2.255 DE',
    '198.51.100.7-198.51.100.7 FR',
    '2001:db8:0:0:0:0:0:0-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff US',
  ]);
  expect(read('')).toEqual([]);
});

test('of networks that lie in one another the longest prefix counts, of one network the last line', () => {
  expect(read('10.1.0.0/16,FR\n10.0.0.0/8,DE\n10.1.2.0/24,IT\n10.255.255.255,US\n10.1.0.0/16,ES')).toEqual([
    '10.0.0.0-10.0.255.255 DE',
    '10.1.0.0-10.1.1.255 ES',
    '10.1.2.0-10.1.2.255 IT',
    '10.1.3.0-10.1.255.255 ES',
    '10.2.0.0-10.255.255.254 DE',
    '10.255.255.255-10.255.255.255 US',
  ]);
});

test.each(partsOf('files of networks', fileCount))(
  'in $cases files each address has the country of the longest prefix, whatever the order of the lines (seed $seed)',
  ({ seed, cases }) => {
    const random = seededRandom(seed);
    for (let round = 0; round < cases; round += 1) {
      const lines = Array.from({ length: 1 + random(12) }, () => {
        const length = 24 + random(9);
        return `10.0.0.${random(256)}/${length},${['DE', 'FR', 'US'][random(3)]!}`;
      });
      const networks = lines.map((line) => {
        const [text = '', country = ''] = line.split(',');
        return { ...parseNetwork(text)!, country };
      });
      const ranges = runToCompletion(readNetworksFile(lines.join('\n')));
      for (let host = 0n; host < 256n; host += 1n) {
        const address = 0x0a000000n + host;
        let best: (typeof networks)[number] | undefined;
        for (const network of networks) {
          const isIn = network.first <= address && address <= lastOf(network);
          if (isIn && (!best || network.prefixLength >= best.prefixLength)) best = network;
        }
        const found = ranges.filter(({ first, last }) => first <= address && address <= last);
        expect(found.map(({ country }) => country)).toEqual(best ? [best.country] : []);
      }
    }
  },
);

test.each([
  ['192.0.2.0/24', 1],
  ['network,country\n192.0.2.0/24,DEU', 2],
  ['192.0.2.0/24,DE\n192.0.2.0/33,DE', 2],
  ['192.0.2.0/24;DE', 1],
  ['192.0.2.0/24,DE\nnetwork,country', 2],
])('%j is refused, with the line', (text, line) => {
  expect(() => read(text)).toThrow(`COUNTRY_NETWORKS_FILE: line ${line} is not "network,country"`);
});
