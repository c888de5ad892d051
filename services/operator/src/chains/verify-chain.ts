import { rename, rm } from 'node:fs/promises';
import { writeNewFile } from '@granary/blobs/stores/new-file';
import { BrokenChainError, ChainChecker } from '@granary/data/chain/chain-check';
import type { Say } from '../program/progress';
import { startProgress } from '../program/progress';
import type { ChainSource } from './chain-source';
import { toLinkPart, type ExportHeader } from './commit-lines';

export interface VerifiedChain {
  commits: number;
  hash: string;
  /** Texts that have the hash that was committed, and documents without a text. */
  texts: { checked: number; absent: number };
}

/** A link whose hash was kept elsewhere. */
export interface KnownLink {
  height: bigint;
  hash: string;
}

/**
 * Recomputes the chain from its contents, in constant memory. Throws BrokenChainError for the first height that does
 * not fit, FormError for what is no commit.
 */
export async function verifyChain(
  source: ChainSource,
  knownLink: KnownLink | undefined,
  say: Say,
): Promise<VerifiedChain> {
  const head = BigInt(source.head.height);
  const checker = new ChainChecker();
  const progress = startProgress(say, (done) => `  ${done} of ${head} commits`);
  for await (const commit of source.commits) {
    const { height } = checker.position;
    if (height === head) break;
    checker.add(toLinkPart(commit));
    if (checker.position.height === height) continue;
    progress.add(1);
    if (checker.position.height === knownLink?.height)
      checkHash(checker, knownLink.hash, 'is not the one that was kept');
  }
  const { height } = checker.end();
  if (height < head) throw new BrokenChainError(height + 1n, 'is missing');
  checkHash(checker, source.head.hash, 'is not the head that the service names');
  if (knownLink && knownLink.height > height) throw new BrokenChainError(height + 1n, 'is missing, which was kept');
  return { commits: Number(height), hash: source.head.hash, texts: checker.texts };
}

function checkHash({ position: { height, hash } }: ChainChecker, expected: string, why: string): void {
  if (hash.toString('hex') !== expected) throw new BrokenChainError(height, why);
}

/** Writes a chain to a file as it is, one line of JSON for each commit or part of one. */
export async function exportChain(source: ChainSource, file: string, signal: AbortSignal): Promise<void> {
  const part = `${file}.part`;
  // A process that was killed may have left it.
  await rm(part, { force: true });
  await writeNewFile(part, source.commits, (commits) => exportLines({ ...source, commits }), signal);
  await rename(part, file).catch(async (error: unknown) => {
    await rm(part, { force: true });
    throw error;
  });
}

async function* exportLines({ appId, head, commits }: ChainSource): AsyncGenerator<string> {
  const header: ExportHeader = { granary_export: 1, app_id: appId, head };
  let lines = `${JSON.stringify(header)}\n`;
  for await (const commit of commits) {
    lines += `${JSON.stringify(commit)}\n`;
    if (lines.length < 64 * 1024) continue;
    yield lines;
    lines = '';
  }
  yield lines;
}
