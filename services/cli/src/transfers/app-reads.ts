import type { App } from '@granary/client';
import { parseAsWritten } from '../exact-json.ts';
import { isGranaryError, isPassing } from '../failure.ts';
import { BrokenOff, pauseAfter } from './passing.ts';

const attempts = 8;

/** An answer of the service as text, with its headers. */
async function readText(app: App, path: string, signal: AbortSignal): Promise<{ text: string; headers: Headers }> {
  for (let failures = 0; ;) {
    try {
      const response = await app.open(path, { signal });
      const text = await response.text().catch((error: Error) => {
        throw new BrokenOff(error.message);
      });
      return { text, headers: response.headers };
    } catch (error) {
      signal.throwIfAborted();
      if (!isPassing(error) || failures >= attempts) throw error;
      await pauseAfter(failures, signal);
      failures += 1;
    }
  }
}

/** The JSON of an answer, in which numbers are as they are written. */
export async function readJson<T>(app: App, path: string, signal: AbortSignal): Promise<T> {
  return parseAsWritten((await readText(app, path, signal)).text) as T;
}

/** The same; undefined where there is no such thing. */
export async function readIfThere<T>(app: App, path: string, signal: AbortSignal): Promise<T | undefined> {
  try {
    return await readJson<T>(app, path, signal);
  } catch (error) {
    if (isGranaryError(error) && error.status === 404) return undefined;
    throw error;
  }
}

/** All pages of a listing: of an array, or of the member of that name. */
export async function readListing<T>(app: App, path: string, member: string | undefined, signal: AbortSignal) {
  const items: T[] = [];
  for (let next: string | undefined = path; next !== undefined;) {
    const { text, headers } = await readText(app, next, signal);
    const page = parseAsWritten(text) as Record<string, T[]> & T[];
    items.push(...(member === undefined ? page : page[member]!));
    next = /<([^>]+)>; rel="next"/.exec(headers.get('link') ?? '')?.[1];
  }
  return items;
}

const skillsHead = /^<!-- [^\n]*, revision \d+, [^\n]* -->\n/;
const generatedBegin = '<!-- granary:generated:begin -->';

/** The part of the skills document that the owner of the app has written; the service makes the rest. */
export async function readSkills(app: App, signal: AbortSignal): Promise<string> {
  const { text } = await readText(app, `/api/skills/${encodeURIComponent(app.id)}/skills.md`, signal);
  return ownerPartOf(text);
}

export function ownerPartOf(document: string): string {
  const end = document.indexOf(generatedBegin);
  return document
    .slice(0, end < 0 ? undefined : end)
    .replace(skillsHead, '')
    .trim();
}
