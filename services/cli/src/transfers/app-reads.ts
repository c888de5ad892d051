import type { App } from '@granary/client';
import { isGranaryError } from '../failure.ts';
import { apiPath } from '../session/paths.ts';

/** The answer to a read; undefined where there is no such thing. */
export async function readIfThere<T>(app: App, path: string, signal: AbortSignal): Promise<T | undefined> {
  try {
    return await app.request<T>('GET', path, { signal });
  } catch (error) {
    if (isGranaryError(error) && error.status === 404) return undefined;
    throw error;
  }
}

const skillsHead = /^<!-- [^\n]*, revision \d+, [^\n]* -->\n/;
const generatedBegin = '<!-- granary:generated:begin -->';

/** The part of the skills document that the owner of the app has written; the service makes the rest. */
export const readSkills = async (app: App, signal: AbortSignal): Promise<string> =>
  ownerPartOf(await app.text(apiPath('skills', app.id, 'skills.md'), { signal }));

export function ownerPartOf(document: string): string {
  const end = document.indexOf(generatedBegin);
  return document
    .slice(0, end < 0 ? undefined : end)
    .replace(skillsHead, '')
    .trim();
}
