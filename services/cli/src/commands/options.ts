import { InvalidArgumentError, Option } from 'commander';

/** An option that is a number of at least one, without a fraction. */
export const countOption = (flags: string, description: string): Option =>
  new Option(flags, description).argParser(positiveInteger);

export function positiveInteger(text: string): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && Number.isSafeInteger(value)) return value;
  throw new InvalidArgumentError('It is not a whole number of at least 1.');
}

export const limitOption = (): Option => countOption('--limit <number>', 'so many, at most');

/** A person is shown so many records if nothing else is said; a pipe is never cut. */
export const shownRecords = 100;

/** For records of users, of which there may be millions. */
export const recordLimitOption = (): Option =>
  new Option(
    '--limit <number>',
    `so many at most, or all; ${shownRecords} on a terminal if nothing else is said`,
  ).argParser((text) => (text === 'all' ? Infinity : positiveInteger(text)));

/** Parses names with commas between them, each of which is one of the choices, in any case of letters. */
export const choicesParser =
  <Choice extends string>(choices: readonly Choice[]) =>
  (text: string): Choice[] =>
    text.split(',').map((name) => choiceOf(choices, name.trim()));

function choiceOf<Choice extends string>(choices: readonly Choice[], text: string): Choice {
  const choice = choices.find((each) => each.toLowerCase() === text.toLowerCase());
  if (choice !== undefined) return choice;
  throw new InvalidArgumentError(`Allowed choices are ${choices.join(', ')}.`);
}

/** An option that is one of the choices, in any case of letters. */
export const choiceOption = (flags: string, description: string, choices: readonly string[]): Option =>
  new Option(flags, description).choices(choices).argParser((text) => choiceOf(choices, text));

export type Values = Readonly<Record<string, string>>;

/** Parses `name=value`, for an option that may be given for each name. */
export function addAssignment(text: string, before: Values = {}): Values {
  const end = text.indexOf('=');
  if (end < 1) throw new InvalidArgumentError('It is written as name=value.');
  const name = text.slice(0, end);
  if (Object.hasOwn(before, name)) throw new InvalidArgumentError(`"${name}" has a value already.`);
  return { ...before, [name]: text.slice(end + 1) };
}
