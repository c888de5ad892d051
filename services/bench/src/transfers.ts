import { createCollection } from './app-setup';
import { documentSizeBytes, writeDocument } from './documents';
import { loadDocuments, settle } from './measure';
import { median, table } from './report';
import { bulkSize } from './runs';
import { startSide, type App, type GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

const documents = 100_000;
/** The least parts of the other rate. */
const wanted = { import: 0.85, export: 0.5 };

/** Medians of documents a second, and of their ratio in a round. */
interface Pair {
  ours: number;
  other: number;
  ratio: number;
}

type TransfersResult = Record<'import' | 'export', Pair>;

export const transfersTitle = `transfers: ${documents.toLocaleString('en')} documents imported beside bulks of ${bulkSize.toLocaleString('en')}, and exported beside COPY`;

/** Starts Granary in one process, and measures both pairs, alternately. */
export async function measureTransfers(tools: Tools, { rounds }: Lengths): Promise<TransfersResult> {
  const { directory, onStart, postgres, postgresPid, load } = tools;
  const side = await startSide('embedded', { as: 'transfers', postgres, directory, onStart });
  const file = lines();
  const rates: Record<'import' | 'bulks' | 'export' | 'copy', number[]> = {
    import: [],
    bulks: [],
    export: [],
    copy: [],
  };
  for (let round = 0; round <= rounds; round += 1) {
    const name = `transfers${round}`;
    const app = await side.openApp(name);
    await createCollection(side, name, app, 'documents');
    await createCollection(side, name, app, 'imported');
    const writes = {
      bulks: async () => {
        const { requests } = app;
        return (await loadDocuments(load, { name: side.name, port: side.port, requests }, documents, 1)).elapsedMs;
      },
      import: () => importMs(side, name, app, file),
    };
    const order = round % 2 === 0 ? (['bulks', 'import'] as const) : (['import', 'bulks'] as const);
    const durationsMs: Partial<Record<keyof typeof rates, number>> = {};
    for (const which of order) {
      await settle([side], postgresPid);
      durationsMs[which] = await writes[which]();
    }
    await postgres.call('tidy');
    durationsMs.export = await exportMs(side, name, app);
    durationsMs.copy = await copyMs(tools, side, name);
    // The first round warms up.
    if (round === 0) continue;
    for (const which of Object.keys(rates) as Array<keyof typeof rates>)
      rates[which].push(documents / durationsMs[which]!);
  }
  const pairOf = (ours: readonly number[], other: readonly number[]): Pair => ({
    ours: median(ours) * 1_000,
    other: median(other) * 1_000,
    ratio: median(ours.map((rate, round) => rate / other[round]!)),
  });
  return { import: pairOf(rates.import, rates.bulks), export: pairOf(rates.export, rates.copy) };
}

/** The documents as a file of JSON lines. */
function lines(): Buffer {
  const file = Buffer.alloc(documents * (documentSizeBytes + 1), '\n');
  for (let number = 0; number < documents; number += 1) writeDocument(file, number * (documentSizeBytes + 1), number);
  return file;
}

async function importMs(side: GranarySide, name: string, { headers }: App, file: Buffer): Promise<number> {
  const beganMs = performance.now();
  const answer = await fetch(`${side.url}/api/apps/${name}/collections/imported/import`, {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/x-ndjson' },
    body: new Uint8Array(file),
  });
  const text = await answer.text();
  const { written } = JSON.parse(text) as { written?: number };
  if (written !== documents) throw new Error(`The import was answered ${answer.status}: ${text.slice(0, 500)}`);
  return performance.now() - beganMs;
}

async function exportMs(side: GranarySide, name: string, { headers }: App): Promise<number> {
  const beganMs = performance.now();
  const url = `${side.url}/api/apps/${name}/collections/imported/export`;
  const answer = await fetch(url, { headers: { ...headers, Accept: 'application/x-ndjson' } });
  let bytes = 0;
  for await (const chunk of answer.body!) bytes += (chunk as Uint8Array).length;
  if (answer.status !== 200 || bytes < documents * documentSizeBytes) {
    throw new Error(`The export was answered ${answer.status} with ${bytes} bytes.`);
  }
  return performance.now() - beganMs;
}

/** Postgres copies the same texts to a client that takes them and does no more. */
async function copyMs({ postgres }: Tools, side: GranarySide, name: string): Promise<number> {
  const database = `${side.prefix}_data`;
  const { rows } = await postgres.call('execute', {
    database,
    text: `select format('a_%s.c_%s', a.number, c.number) as name from collection c
           join application a on a.number = c.app_number where a.app_id = '${name}' and c.name = 'imported'`,
  });
  const text = `copy (select body from ${String(rows[0]!['name'])} order by id) to stdout`;
  const { bytes, ms } = await postgres.call('copyOut', { database, text });
  if (bytes < documents * documentSizeBytes) throw new Error(`COPY gave ${bytes} bytes.`);
  return ms;
}

/** Formats the table of results. */
export function transfersLines(result: TransfersResult): string[] {
  const rate = (perSecond: number) => `${Math.round(perSecond).toLocaleString('en')}/s`;
  const titles = { import: 'import / bulks by one client', export: 'export / copy to stdout' };
  const rows = (['import', 'export'] as const).map((name) => {
    const { ours, other, ratio } = result[name];
    return [titles[name], rate(ours), rate(other), `× ${ratio.toFixed(2)}`, `× ${wanted[name]}`];
  });
  return ['', transfersTitle, ...table([['documents', 'ours', 'other', 'ratio', 'wanted'], ...rows])];
}
