import { BlockList, isIP } from 'node:net';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { seededRandom } from '../../test/support/random';
import { addressText, lastOf, networkText, parseNetwork } from './network';

const networkCount = size({ run: 200, long: 2_000 });

test.each([
  ['10.1.2.3', '10.1.2.3/32'],
  ['10.1.2.3/8', '10.0.0.0/8'],
  ['0.0.0.0/0', '0.0.0.0/0'],
  ['255.255.255.255', '255.255.255.255/32'],
  ['::', '0:0:0:0:0:0:0:0/128'],
  ['::/0', '0:0:0:0:0:0:0:0/0'],
  ['2001:DB8::1/32', '2001:db8:0:0:0:0:0:0/32'],
  ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0/128'],
  ['::1.2.3.4', '0:0:0:0:0:0:102:304/128'],
  ['::ffff:10.1.2.3', '10.1.2.3/32'],
  ['::FFFF:0a01:0203/104', '10.0.0.0/8'],
  ['::ffff:0:0/96', '0.0.0.0/0'],
  // Most of it is not mapped, so it is a network of IPv6 addresses.
  ['::ffff:0:0/95', '0:0:0:0:0:fffe:0:0/95'],
])('%s is the network %s', (text, network) => {
  expect(networkText(parseNetwork(text)!)).toBe(network);
});

test.each([
  '',
  ' ',
  '10',
  '10.1',
  '10.1.2',
  '10.1.2.3.4',
  '256.1.1.1',
  '010.1.2.3',
  '10.1.2.03',
  '0x0a.1.2.3',
  '10.1.2.3/33',
  '10.1.2.3/',
  '10.1.2.3/-1',
  '10.1.2.3/08',
  '10.1.2.3/8/8',
  '/8',
  ' 10.1.2.3',
  '10.1.2.3 ',
  '10.1.2.3\n',
  '10.1.2.3:80',
  '[::1]',
  'fe80::1%eth0',
  'fe80::1%1/64',
  '::1/129',
  ':::',
  '1::2::3',
  '1:2:3:4:5:6:7:8::',
  '12345::',
  'g::',
  '::1.2.3',
  '1:2:3:4:5:6:7',
  '::01.2.3.4',
  '１０.1.2.3',
  '10。1。2。3',
  'localhost',
  'null',
])('%j is no network', (text) => {
  expect(parseNetwork(text)).toBeUndefined();
});

test.each(partsOf('networks', networkCount))(
  'which addresses $cases networks have is what BlockList says (seed $seed)',
  ({ seed, cases }) => {
    const random = seededRandom(seed);
    const addressOf = (family: 4 | 6): string => {
      if (family === 4) return Array.from({ length: 4 }, () => random(4) && random(256)).join('.');
      return Array.from({ length: 8 }, () => (random(3) && random(65_536)).toString(16)).join(':');
    };
    for (let round = 0; round < cases; round += 1) {
      const family = random(2) === 0 ? 4 : 6;
      const [base, length] = [addressOf(family), random(family === 4 ? 33 : 129)];
      const network = parseNetwork(`${base}/${length}`)!;
      const list = new BlockList();
      list.addSubnet(base, length, `ipv${family}`);
      const last = lastOf(network);
      for (const [address, isIn] of [
        [network.first, true],
        [last, true],
        [network.first - 1n, false],
        [last + 1n, false],
      ] as const) {
        if (address < 0n || address >= 1n << (family === 4 ? 32n : 128n)) continue;
        const text = addressText(family, address);
        expect(isIP(text)).toBe(family);
        expect([base, length, text, list.check(text, `ipv${family}`)]).toEqual([base, length, text, isIn]);
      }
    }
  },
);
