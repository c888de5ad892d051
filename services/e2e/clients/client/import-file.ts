import { readFileSync } from 'node:fs';
import { granary } from '@granary/client';
import type { Target } from './checks.js';

/** Imports documents that have no ids, so that one which is stored twice makes two, and says how far it is. */
const { records, ...target } = JSON.parse(readFileSync(0, 'utf8')) as Target & { records: number };

function* documents(): Generator<{ n: number; text: string }> {
  for (let n = 0; n < records; n += 1) yield { n, text: `${n} `.repeat(20) };
}

const app = granary({ ...target, retries: 30, timeoutMs: 120_000 });
const { status, written } = await app.collection('rows').import(documents(), {
  onProgress: ({ offset, written: soFar }) => console.log(JSON.stringify({ offset, written: soFar })),
});
console.log(JSON.stringify({ status, written }));
