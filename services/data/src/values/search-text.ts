import type { Capture } from '../json/document';

/** Bytes of a value that a full-text index holds. */
export const searchTextMaxBytes = 256 * 1024;

/**
 * The characters that Postgres's parser may take for a part of an address, a path, a tag, a number or a compound word.
 * On texts full of them its time grows with the square of the length, so they become spaces. Two letters and, in one
 * locale, a third have a lower case that is longer: a word of them could outgrow the 2 KB of a lexeme.
 */
const separators = '<>&#_/\\@:?=%~+.-';
const lengthening = new Map([
  ['Ⱥ', 'ⱥ'],
  ['Ⱦ', 'ⱦ'],
  ['İ', 'i'],
]);
const mapped = /[<>&#_/\\@:?=%~+.\-ȺȾİ]/g;
const toWords = (text: string): string => text.replace(mapped, (character) => lengthening.get(character) ?? ' ');

/**
 * Returns the text that a full-text index holds of a value: the words of a string, or of the strings of an array; null
 * for any other value. `search_text()` in migrations/0012_index_types.sql gives the same text.
 */
export function searchText(bytes: Buffer, value: Capture | undefined): string | null {
  if (value?.type !== 'string' && value?.type !== 'array') return null;
  const parsed = JSON.parse(bytes.toString('utf8', value.start, value.end)) as unknown;
  if (typeof parsed === 'string') return truncate(toWords(parsed));
  const strings = (parsed as unknown[]).filter((element) => typeof element === 'string');
  return strings.length === 0 ? null : truncate(toWords(strings.join('\n')));
}

function truncate(text: string): string {
  // Three bytes of UTF-8 for each unit of UTF-16, at most.
  if (text.length * 3 <= searchTextMaxBytes) return text;
  const bytes = Buffer.from(text);
  if (bytes.length <= searchTextMaxBytes) return text;
  let end = searchTextMaxBytes;
  while ((bytes[end]! & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}

const isSeparator = new RegExp(`[${separators.replace(/[\\\-/]/g, '\\$&')}]+`);

/**
 * A search as websearch_to_tsquery takes it, with words separated as in the indexed texts. What is written together, as
 * `e-mail`, is a phrase.
 */
export function searchWords(search: string): string {
  const parts = search.split('"');
  return parts
    .map((part, index) => (index % 2 === 1 ? toWords(part) : part.split(/(\s+)/).map(termOf).join('')))
    .join('"');
}

function termOf(term: string): string {
  const [, minus, rest] = /^(-?)([^]*)$/.exec(term)!;
  const words = rest!.split(isSeparator).filter((word) => word !== '');
  const text = toWords(words.join(' '));
  if (text === '') return '';
  return words.length === 1 ? minus! + text : `${minus}"${text}"`;
}
