import { charSet, type CharSet } from './char-set';

const ranges = (text: string): CharSet => charSet([...text].map((character) => character.charCodeAt(0)));

const word = ranges('09AZ__az');

/** Perl's classes by their letters; in upper case they mean the characters that the set lacks. */
export const perlClasses: ReadonlyMap<string, CharSet> = new Map([
  ['d', ranges('09')],
  ['s', ranges('\t\n\f\r  ')],
  ['w', word],
]);

/** The classes that brackets name, as in `[[:alpha:]]`; all of them are ASCII. */
export const posixClasses: ReadonlyMap<string, CharSet> = new Map([
  ['alnum', ranges('09AZaz')],
  ['alpha', ranges('AZaz')],
  ['ascii', ranges('\0\x7f')],
  ['blank', ranges('\t\t  ')],
  ['cntrl', ranges('\0\x1f\x7f\x7f')],
  ['digit', ranges('09')],
  ['graph', ranges('!~')],
  ['lower', ranges('az')],
  ['print', ranges(' ~')],
  ['punct', ranges('!/:@[`{~')],
  ['space', ranges('\t\r  ')],
  ['upper', ranges('AZ')],
  ['word', word],
  ['xdigit', ranges('09AFaf')],
]);
