import { readFile } from 'node:fs/promises';
import type { App } from '@granary/client';
import { apiPath } from '../session/paths.ts';
import { parseExact } from '../exact-json.ts';
import { Failure } from '../failure.ts';
import { replaceFile } from '../replace-file.ts';
import { readAppDocument } from './app-document.ts';
import { emitTypes } from './emit.ts';

export const defaultFile = 'granary.gen.ts';

/** The path of what an app offers to readers, as an OpenAPI document. */
export const openapiPath = (app: App): string => apiPath('apps', app.id, 'openapi.json');

export interface AppTypesText {
  text: string;
  /** The parts that the service has left out, such as `2 collections`; undefined if it has all. */
  omitted: string | undefined;
}

/** The types of an app as it is now. Throws GranaryError, and Failure for an answer of another form. */
export async function readTypes(app: App, signal: AbortSignal): Promise<AppTypesText> {
  const text = await app.text(openapiPath(app), { signal });
  try {
    const document = readAppDocument(parseExact(text));
    return { text: emitTypes(app.id, document), omitted: document.omitted };
  } catch (error) {
    throw new Failure(`The service has no OpenAPI document of the app: ${(error as Error).message}`, {
      nextStep: '`granary openapi` shows what it answers; `granary profiles` shows its URL.',
    });
  }
}

/** The text of a file with the line ends of this program; undefined where there is none. Throws Failure. */
async function readText(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).replaceAll('\r\n', '\n');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Failure(`The types cannot be read: ${(error as Error).message}`);
  }
}

/** Writes the file unless it has this text already. Resolves to whether it has written. Throws Failure. */
export async function writeTypes(file: string, text: string): Promise<boolean> {
  if ((await readText(file)) === text) return false;
  try {
    await replaceFile(file, text);
  } catch (error) {
    throw new Failure(`The types cannot be written: ${(error as Error).message}`, {
      nextStep: '`--out` names another file.',
    });
  }
  return true;
}

/** Throws Failure where the file has not this text: it says the first line that differs. */
export async function checkTypes(file: string, text: string): Promise<void> {
  const present = await readText(file);
  if (present === text) return;
  const nextStep = `\`granary types --out ${file}\` makes it anew.`;
  if (present === undefined) throw new Failure(`${file} is not there`, { nextStep });
  throw new Failure(`${file} is not what the app has now: ${differenceOf(present, text)}`, { nextStep });
}

/** The first line in which two texts differ. */
export function differenceOf(present: string, wanted: string): string {
  const [lines, wantedLines] = [present, wanted].map((text) => text.split('\n')) as [string[], string[]];
  const index = wantedLines.findIndex((line, each) => line !== lines[each]);
  if (index < 0) return `it has more lines, from line ${wantedLines.length + 1} on`;
  return `line ${index + 1} is ${shownLine(lines[index])}, and has to be ${shownLine(wantedLines[index])}`;
}

const shownLength = 80;

function shownLine(line: string | undefined): string {
  if (line === undefined) return 'missing';
  const text = line.trim();
  return `"${text.length > shownLength ? `${text.slice(0, shownLength)}…` : text}"`;
}
