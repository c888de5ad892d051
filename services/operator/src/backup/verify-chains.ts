import type { Client } from 'pg';
import { BrokenChainError, chainStart, followChain, type StoredLink } from '@granary/data/chain/chain-check';
import { ConfigError } from '@granary/shared/config';
import { appHeads, type AppHead } from './cut-rows';
import { startProgress, type Say } from '../program/progress';

const pageLinks = 10_000;

export interface CheckedChains {
  apps: number;
  links: number;
}

/**
 * Recomputes the hash chain of every app link by link, and compares the apps and their heads with `expected`. Throws a
 * ConfigError that names the first difference.
 */
export async function verifyChains(data: Client, expected: AsyncIterable<AppHead>, say: Say): Promise<CheckedChains> {
  const headsByApp = new Map<string, AppHead>();
  for await (const head of expected) headsByApp.set(head.appId, head);
  const checked: CheckedChains = { apps: 0, links: 0 };
  const progress = startProgress(say, (done) => `  hash chains: ${done} links of ${checked.apps} apps`);
  for await (const head of appHeads(data)) {
    const { appId } = head;
    const want = headsByApp.get(appId);
    if (want === undefined) throw new ConfigError(`The app ${appId} is not in the backup's list of apps.`);
    headsByApp.delete(appId);
    for (const [what, has, should] of [
      ['number', head.number, want.number],
      ['height', head.height, want.height],
      ['head', head.hash, want.hash],
    ]) {
      if (has !== should) throw new ConfigError(`The app ${appId} has the ${what} ${has} instead of ${should}.`);
    }
    checked.links += await verifyChain(data, head, (count) => progress.add(count));
    checked.apps++;
  }
  const [missing] = headsByApp.keys();
  if (missing !== undefined) throw new ConfigError(`The app ${missing} is missing.`);
  return checked;
}

async function verifyChain(data: Client, head: AppHead, onLinks: (count: number) => void): Promise<number> {
  let position = chainStart;
  try {
    for (;;) {
      const { rows } = await data.query<{ height: string; hash: Buffer; content: Buffer }>(
        `select link.height::text, hash, content_hash as content from a_${BigInt(head.number)}.commits link
         where link.height > $1 order by link.height limit ${pageLinks}`,
        [position.height.toString()],
      );
      if (rows.length === 0) break;
      position = followChain(
        position,
        rows.map((row): StoredLink => ({ ...row, height: BigInt(row.height) })),
      );
      onLinks(rows.length);
    }
  } catch (error) {
    if (!(error instanceof BrokenChainError)) throw error;
    throw new ConfigError(`The hash chain of the app ${head.appId} is broken: ${error.message}.`, { cause: error });
  }
  if (position.height.toString() !== head.height || position.hash.toString('hex') !== head.hash) {
    throw new ConfigError(
      `The hash chain of the app ${head.appId} ends at ${position.height} and its head is ${head.height}.`,
    );
  }
  return Number(position.height);
}
