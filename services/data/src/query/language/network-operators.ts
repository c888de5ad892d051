import type { JsonValue } from '@granary/shared/json/value';
import { localNetworks, networkText, parseNetwork } from '../../values/network';
import type { Path } from './condition';
import { flagOf, listOf, textOf, type Operator } from './operator';
import { invalidQuery } from './query-error';

/** Operators for text that is an IP address. All of them are false for any other value. */
export const networkOperators: readonly Operator[] = [
  {
    spellings: ['CIDR', 'cidr'],
    operand: 'texts',
    parse: (path, operand, location) => ({
      kind: 'network',
      path,
      networks: textsOf(operand, location).map((text) => networkOf(text, location)),
      isWithin: true,
    }),
  },
  { spellings: ['isLocalIp'], operand: 'flag', parse: (path, operand, index) => local(path, flagOf(operand, index)) },
  {
    spellings: ['isExternalIp'],
    operand: 'flag',
    parse: (path, operand, index) => local(path, !flagOf(operand, index)),
  },
  {
    spellings: ['inCountry'],
    operand: 'texts',
    parse: (path, operand, location) => ({
      kind: 'country',
      path,
      countries: textsOf(operand, location).map((text) => countryOf(text, location)),
    }),
  },
];

const local = (path: Path, isWithin: boolean) => ({
  kind: 'network' as const,
  path,
  networks: localNetworks,
  isWithin,
});

/** A text, or a list of texts. */
const textsOf = (operand: JsonValue, location: string): string[] =>
  (Array.isArray(operand) ? listOf(operand, location) : [operand]).map((text) => textOf(text, location));

function networkOf(text: string, location: string): string {
  const network = parseNetwork(text);
  if (!network) throw invalidQuery(location, 'must hold networks such as 10.0.0.0/8 and 2001:db8::/32, or addresses');
  return networkText(network);
}

function countryOf(text: string, location: string): string {
  if (!/^[A-Za-z]{2}$/.test(text))
    throw invalidQuery(location, 'must hold ISO 3166-1 alpha-2 codes of countries, such as DE');
  return text.toUpperCase();
}
