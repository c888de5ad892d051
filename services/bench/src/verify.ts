import { categoryName, ownerName } from './documents';
import { fetchJson } from './fetch-json';
import type { RunName } from './runs';
import type { Side } from './sides';

const samples = 20;

/**
 * Sends the same reads to every side before the measurement, and checks that each has all documents and returns the
 * same ones, pages in the same order. Throws an Error that describes the difference.
 */
export async function verifySides(sides: readonly Side[], documentCount: number): Promise<void> {
  for (const side of sides) {
    const count = await side.count('documents');
    if (count !== documentCount) throw new Error(`${side.name} has ${count} documents, not ${documentCount}.`);
  }
  for (let i = 0; i < samples; i++) {
    await compare(sides, 'point', { owner: ownerName((i * 811) % documentCount) }, (ids) => ids.sort());
    await compare(sides, 'page', { category: categoryName(i * 5) }, (ids) => ids);
  }
}

async function compare(
  sides: readonly Side[],
  run: RunName,
  values: Record<string, string>,
  order: (ids: string[]) => string[],
): Promise<void> {
  let expected: string | undefined;
  for (const side of sides) {
    const path = side.requests[run].path.replace(/\{(\w+)\}/, (_, name: string) => values[name]!);
    const { records } = await fetchJson<{ records: Array<{ id: string }> }>(`${side.url}${path}`);
    const ids = order(records.map(({ id }) => id)).join(' ');
    if (ids === '') throw new Error(`${side.name} finds nothing at ${path}.`);
    expected ??= ids;
    if (ids !== expected) throw new Error(`${side.name} answers ${path} with ${ids}, not ${expected}.`);
  }
}

/** Throws unless each side, after the runs, has every document and file whose request it accepted. */
export async function verifyWrites(sides: readonly Side[]): Promise<void> {
  for (const side of sides) {
    for (const [collection, accepted] of Object.entries(side.accepted)) {
      // A collection without writes may not exist.
      if (accepted === 0) continue;
      const count = await side.count(collection);
      if (count !== accepted) throw new Error(`${side.name} accepted ${accepted} ${collection} and has ${count}.`);
    }
  }
}
