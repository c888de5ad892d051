import { BlockList, isIP } from 'node:net';

/** Texts of addresses, of what only looks like one, and what lies at the edges of networks. */
export const addresses = [
  '10.0.0.0',
  '10.255.255.255',
  '9.255.255.255',
  '11.0.0.0',
  '172.16.0.1',
  '172.15.255.255',
  '172.32.0.0',
  '192.168.1.1',
  '192.0.2.5',
  '100.64.0.1',
  '100.128.0.0',
  '127.0.0.1',
  '169.254.7.7',
  '0.0.0.0',
  '255.255.255.255',
  '8.8.8.8',
  '203.0.113.77',
  '::',
  '::1',
  '::2',
  'fc00::1',
  'fdff:ffff::',
  'fe00::1',
  'fe80::1',
  'febf::',
  'fec0::1',
  '2001:db8::8',
  '2001:DB8:0:0:0:0:0:8',
  '2001:db9::',
  '::ffff:10.1.1.1',
  '::FFFF:a01:101',
  '0:0:0:0:0:ffff:8.8.8.8',
  '::10.1.1.1',
  '::fffe:10.1.1.1',
  '64:ff9b::10.1.1.1',
  '1:2:3:4:5:6:7::',
  '1:2:3:4:5:6:1.2.3.4',
  // None of these is an address.
  '010.0.0.1',
  '10.0.0.01',
  '10.0.0',
  '10',
  '10.0.0.0/8',
  '10.0.0.1/32',
  ' 10.0.0.1',
  '10.0.0.1 ',
  '10.0.0.1\n',
  '10.0.0.1:80',
  '[::1]',
  'fe80::1%eth0',
  'fe80::1%1',
  '::1/128',
  '256.0.0.1',
  '1::2::3',
  ':::',
  '0x7f.0.0.1',
  '1:2:3:4:5:6:7:8:9',
  '12345::',
  'localhost',
  '１0.0.0.1',
  '167772161',
  `::1${' '.repeat(60)}`,
] as const;

export const networks = [
  '10.0.0.0/8',
  '10.1.1.1',
  '0.0.0.0/0',
  '192.0.2.0/29',
  '::/0',
  '2001:db8::/32',
  '2001:db8::8',
  'fe80::/10',
  '::ffff:10.0.0.0/104',
  '::ffff:0:0/96',
  '::ffff:0:0/80',
  '8.8.8.7/31',
  '10.77.0.0/8',
  '::10.0.0.0/104',
] as const;

export const countryCodes = ['DE', 'FR', 'us', 'XX'] as const;
/** The file of networks by country: some lie in others, one is there twice. */
export const countryLines = [
  '10.1.0.0/16,FR',
  '10.0.0.0/8,DE',
  '10.1.1.0/24,US',
  '8.8.8.8,US',
  '203.0.113.0/24,DE',
  '203.0.113.0/24,FR',
  '2001:db8::/32,US',
  '2001:db8::8/128,DE',
  '::/8,FR',
  '::1,DE',
  '192.0.2.4/30,DE',
];

/** The address as its family and text, an IPv4-mapped one as IPv4; undefined for any other value. */
function addressOf(value: unknown): { family: 4 | 6; text: string } | undefined {
  if (typeof value !== 'string' || value.includes('%')) return undefined;
  const family = isIP(value);
  if (family === 0) return undefined;
  if (family === 4) return { family: 4, text: value };
  // A URL has one spelling for each address.
  const mapped = /^\[::ffff:([0-9a-f]+):([0-9a-f]+)\]$/.exec(new URL(`http://[${value}]`).hostname);
  if (!mapped) return { family: 6, text: value };
  const [high = 0, low = 0] = mapped.slice(1).map((group) => Number.parseInt(group, 16));
  return { family: 4, text: [high >> 8, high & 255, low >> 8, low & 255].join('.') };
}

function isWithin({ family, text }: { family: 4 | 6; text: string }, network: string): boolean {
  const [base = '', length] = network.split('/');
  const own = addressOf(base)!;
  const isMapped = own.family === 4 && isIP(base) === 6;
  const bits = Number(length ?? (isIP(base) === 4 ? 32 : 128));
  // A mapped network that is shorter than its prefix is one of IPv6 addresses.
  const [inFamily, prefix, start] = isMapped && bits >= 96 ? [4, bits - 96, own.text] : [isIP(base), bits, base];
  if (inFamily !== family) return false;
  const list = new BlockList();
  list.addSubnet(start, prefix, family === 4 ? 'ipv4' : 'ipv6');
  return list.check(text, family === 4 ? 'ipv4' : 'ipv6');
}

const localRanges = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '255.255.255.255/32',
  '::/128',
  '::1/128',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
];

const listOf = (operand: unknown): string[] => (Array.isArray(operand) ? operand : [operand]) as string[];

export function networkOperatorHolds(operator: string, value: unknown, operand: unknown): boolean {
  const address = addressOf(value);
  if (!address) return false;
  const isLocal = localRanges.some((network) => isWithin(address, network));
  switch (operator) {
    case 'CIDR':
      return listOf(operand).some((network) => isWithin(address, network));
    case 'isLocalIp':
      return isLocal === operand;
    case 'isExternalIp':
      return isLocal !== operand;
    default:
      return listOf(operand).some((code) => code.toUpperCase() === countryOf(address));
  }
}

/** The country of the line with the longest prefix, of the last such line. */
function countryOf(address: { family: 4 | 6; text: string }): string | undefined {
  let [best, country] = [-1, undefined as string | undefined];
  for (const line of countryLines) {
    const [network = '', code] = line.split(',');
    const length = Number(network.split('/')[1] ?? (isIP(network) === 4 ? 32 : 128));
    if (length >= best && isWithin(address, network)) [best, country] = [length, code];
  }
  return country;
}
