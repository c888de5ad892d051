import { UsageError } from '../failure.ts';

/** The operand of a condition as it was typed, with what an error about it says. */
export interface Typed {
  /** The whole condition, which errors name. */
  argument: string;
  /** The condition up to the operand, for examples. */
  before: string;
  text: string;
}

const number = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const quoted = /"(?:[^"\\]|\\.)*"/.source;
const isQuoted = new RegExp(`^${quoted}$`);
const element = new RegExp(`\\s*(${quoted}|[^,]*?)\\s*(?:,|$)`, 'y');
const range = new RegExp(`^(${quoted}|[^",]*?)\\s*\\.\\.\\s*(${quoted}|[^",]*)$`);

const mistake = (typed: Typed, problem: string, example: string): UsageError =>
  new UsageError(`"${typed.argument}": ${problem}`, `For example '${typed.before}${example}'.`);

/** The text in quotes, for an example. */
const inQuotes = (text: string): string => JSON.stringify(text.replaceAll('"', ''));

function checkQuotes(typed: Typed, text: string): void {
  try {
    JSON.parse(text);
  } catch {
    throw mistake(typed, `${text} is not a text of JSON: a " or \\ within quotes has a \\ before it`, '"a \\"b\\""');
  }
}

/** A text as JSON: in quotes it is taken as JSON, else each character stands for itself. */
export function textOperand(typed: Typed): string {
  const { text } = typed;
  if (text === '' || text === '""') throw mistake(typed, 'the text to compare with is missing', 'Em');
  if (!text.startsWith('"')) return JSON.stringify(text);
  checkQuotes(typed, text);
  return text;
}

/** A number, true, false, null or a text in quotes as it is written, and everything else as a text. */
export function scalarOperand(typed: Typed, text = typed.text): string {
  if (number.test(text) || text === 'true' || text === 'false' || text === 'null') return text;
  if (text === '') throw mistake(typed, 'a value is missing', '1900');
  if (text.startsWith('"')) {
    checkQuotes(typed, text);
    return text;
  }
  if (/^(?:\+\d+(?:\.\d+)?|[+-]?\d+\.|[+-]?\.\d+)$/.test(text)) {
    throw mistake(typed, `${text} is not a number as JSON has it, and a text that looks so is put into quotes`, '0.5');
  }
  if (/^[=<>!~]/.test(text)) {
    throw mistake(typed, `${text[0]} begins no value: a text that begins so is put into quotes`, inQuotes(text));
  }
  if (text.includes('..')) {
    throw mistake(typed, 'two dots stand between the ends of a range: a text with them is put into quotes', '"a..b"');
  }
  if (text.includes('"')) throw mistake(typed, 'quotes are put around the whole value', inQuotes(text));
  return JSON.stringify(text);
}

/** The same, but null, which nothing is greater than. */
export function comparedOperand(typed: Typed): string {
  if (typed.text === '' || typed.text === 'null') throw mistake(typed, 'null cannot be compared in this way', '1900');
  if (/^[[{]/.test(typed.text)) throw mistake(typed, 'a number or a text is expected', '1900');
  return scalarOperand(typed);
}

/** JSON of a list or an object; undefined for a text that begins as neither. */
export function structureOperand(typed: Typed): { operand: string; isList: boolean } | undefined {
  const { text } = typed;
  if (!/^[[{]/.test(text)) return undefined;
  const isList = text.startsWith('[');
  try {
    if (isList && (JSON.parse(text) as unknown[]).length === 0) throw mistake(typed, 'the list is empty', '["A","B"]');
    JSON.parse(text);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw mistake(typed, `what begins with ${text[0]} has to be JSON: ${(error as Error).message}`, '["A","B"]');
  }
  return { operand: text, isList };
}

/** The elements between commas; one where there is none. Commas within quotes are characters. */
function elementsOf(text: string): string[] {
  const elements: string[] = [];
  element.lastIndex = 0;
  for (let end = 0; end < text.length || text[end - 1] === ',';) {
    const match = element.exec(text);
    if (!match) break;
    elements.push(match[1]!);
    if (element.lastIndex === end) break;
    end = element.lastIndex;
  }
  return elements;
}

/** A JSON list of what stands between commas; undefined where there is no comma outside of quotes. */
export function listOperand(typed: Typed): string | undefined {
  const elements = elementsOf(typed.text);
  if (elements.length < 2) return undefined;
  if (elements.includes('')) {
    throw mistake(typed, 'an element of the list is empty: a text with a comma is put into quotes', '"a, b",c');
  }
  return `[${elements.map((each) => scalarOperand(typed, each)).join(',')}]`;
}

/** A JSON list of the ends of `low..high`; undefined where there are no two dots outside of quotes. */
export function rangeOperand(typed: Typed): string | undefined {
  const [, low, high] = isQuoted.test(typed.text) ? [] : (range.exec(typed.text) ?? []);
  if (low === undefined || high === undefined) return undefined;
  if (low === '' || high === '') {
    throw mistake(
      typed,
      'a range has two ends; >= and <= compare with one, and a text with .. is put into quotes',
      '1900..1950',
    );
  }
  const ends = [scalarOperand(typed, low), scalarOperand(typed, high)];
  if (ends.every((end) => number.test(end)) && Number(ends[0]) > Number(ends[1])) {
    throw mistake(typed, `the range is empty, for ${low} is greater than ${high}`, `${high}..${low}`);
  }
  if (number.test(ends[0]!) !== number.test(ends[1]!)) {
    throw mistake(typed, `${low} and ${high} are of two types, between which nothing is`, '1900..1950');
  }
  if (low.length === high.length && low > high && !number.test(ends[0]!)) {
    throw mistake(typed, `the range is empty, for ${low} is behind ${high}`, `${high}..${low}`);
  }
  return `[${ends.join(',')}]`;
}
