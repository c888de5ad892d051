import { UsageError } from '../failure.ts';
import { broken, ChainCheck, hashForm, type CheckedCounts, type CommitPart } from './chain-check.ts';
import { chainStart, type Link } from './hash-chain.ts';

/** A page of commits as the service answers it. */
export interface CommitPage {
  head: Link;
  commits: readonly CommitPart[];
  next_cursor?: string;
}

/** Reads a page: from a height on, or behind the one before. */
export type ReadCommits = (place: { from: number; limit?: number } | { cursor: string }) => Promise<CommitPage>;

export interface Verification {
  from: number;
  /** The last height; that of the head if nothing else is said. */
  to?: number | undefined;
  /** Hashes that were kept elsewhere. */
  kept: readonly Link[];
  /** Is told the last link that fits, and the height of the last one. */
  onProgress?: (last: Link, to: number) => void;
}

export interface VerifiedChain {
  last: Link;
  commits: number;
  counts: CheckedCounts;
  /** Whether the hash before the first commit was taken from the service, since none was kept. */
  isStartTaken: boolean;
}

/** Reads `<height>:<hash>`. Throws UsageError. */
export function readKept(text: string): Link {
  const [, height, hash] = /^([1-9]\d{0,14}):([0-9a-fA-F]{64})$/.exec(text) ?? [];
  if (height !== undefined && hash !== undefined) return { height: Number(height), hash: hash.toLowerCase() };
  throw new UsageError(`--against "${text}" is not a height and a hash`, '`granary verify` prints it as 42:4f8f97f6….');
}

/** Recomputes the chain of an app, page by page. Throws Failure for the first height that does not fit. */
export async function verifyChain(read: ReadCommits, request: Verification): Promise<VerifiedChain> {
  const { from, kept, onProgress } = request;
  let page = await read({ from });
  const head = checkedHead(page, from);
  const to = request.to ?? head.height;
  checkRange(request, head, to);
  const start = from === 1 ? chainStart : await linkAt(read, from - 1);
  checkKept(start, kept);
  const check = new ChainCheck(start);
  while (check.last.height < to) {
    const { height } = check.last;
    for (const part of page.commits) {
      check.add(part);
      checkKept(check.last, kept);
      if (check.last.height === to) break;
    }
    onProgress?.(check.last, to);
    if (check.last.height === to) break;
    if (page.next_cursor === undefined || page.commits.length === 0) {
      check.end();
      throw broken(check.last.height + 1, `the commit is missing, and the head is at ${head.height}`);
    }
    page = await read({ cursor: page.next_cursor });
    const { height: headHeight } = checkedHead(page, height + 1);
    if (headHeight < height) throw broken(headHeight + 1, 'the head went back while it was verified');
  }
  if (to === head.height && check.last.hash !== head.hash) {
    throw broken(to, 'its hash is not the one that the service names as its head');
  }
  const isStartTaken = from > 1 && !kept.some(({ height }) => height === from - 1);
  return { last: check.last, commits: to - from + 1, counts: check.counts, isStartTaken };
}

/** The head of a page. Throws Failure for one that is none: nothing could be compared with it. */
function checkedHead({ head }: CommitPage, height: number): Link {
  const isLink = Number.isSafeInteger(head?.height) && head.height >= 0 && hashForm.test(head.hash);
  if (isLink) return head;
  throw broken(height, 'the service names no head of the chain');
}

function checkRange({ from, to: wanted, kept }: Verification, head: Link, to: number): void {
  const highest = Math.max(0, ...kept.map(({ height }) => height));
  if (highest > head.height) {
    throw broken(head.height + 1, `the chain ends before height ${highest}, of which a hash was kept`);
  }
  if (wanted !== undefined && wanted > head.height) {
    throw new UsageError(`--to ${wanted} is beyond the last commit`, `The last one is ${head.height}.`);
  }
  if (from > to + 1 || (wanted !== undefined && from > wanted)) {
    throw new UsageError(`There is nothing to verify from ${from} to ${to}`, `The last commit is ${head.height}.`);
  }
  const outside = kept.find(({ height }) => height < from - 1 || height > to);
  if (!outside) return;
  throw new UsageError(
    `--against ${outside.height}:… is not among the heights ${from} to ${to}`,
    `--from ${Math.min(from, outside.height + 1)} --to ${Math.max(to, outside.height)} has it.`,
  );
}

/** The link before the first one that is verified, as the service names it. */
async function linkAt(read: ReadCommits, height: number): Promise<Link> {
  const [commit] = (await read({ from: height, limit: 1 })).commits;
  if (commit?.height !== height) throw broken(height, 'the commit is missing');
  return { height, hash: commit.hash };
}

function checkKept({ height, hash }: Link, kept: readonly Link[]): void {
  const expected = kept.find((link) => link.height === height && link.hash !== hash);
  if (expected) throw broken(height, `its hash is ${hash}, and ${expected.hash} was kept`);
}
