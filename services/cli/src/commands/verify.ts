import type { App } from '@granary/client';
import type { Command } from 'commander';
import { UsageError } from '../failure.ts';
import type { Link } from '../proof/hash-chain.ts';
import type { CommitPage, ReadCommits, VerifiedChain } from '../proof/verify-chain.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { apiPath } from '../session/paths.ts';
import { ProgressBar } from '../terminal/progress.ts';
import { printObject } from '../terminal/table.ts';

interface VerifyOptions {
  from?: string;
  to?: string;
  against?: string[];
}

const pageCommits = 1_000;

export function addVerifyCommand(program: Command): void {
  program
    .command('verify')
    .description('recompute the hash chain of the app from its documents, without trust in the service')
    .option('--from <height>', 'the first commit', '1')
    .option('--to <height>', 'the last commit; the newest if nothing is said')
    .option(
      '--against <height:hash>',
      'a hash that you kept; may be given several times',
      (text, before: string[] = []) => [...before, text],
    )
    .action(action<VerifyOptions>(verify));
}

async function verify(call: Invocation<VerifyOptions>): Promise<void> {
  const { terminal, options, signal } = call;
  const { readKept, verifyChain } = await import('../proof/verify-chain.ts');
  const kept = (options.against ?? []).map(readKept);
  const from = heightOf('--from', options.from!);
  const to = options.to === undefined ? undefined : heightOf('--to', options.to);
  // Texts of documents are strings in its answers: no number is lost.
  const app = await call.app({ parse: JSON.parse });
  const bar = new ProgressBar(terminal, 'Verifying');
  let last: Link | undefined;
  try {
    const chain = await verifyChain(readCommits(app, signal), {
      from,
      to,
      kept,
      onProgress: (link, end) => {
        last = link;
        bar.show(link.height - from + 1, end - from + 1, `${link.height} of ${end}`);
      },
    });
    bar.end();
    await report(call, from, chain);
  } catch (error) {
    bar.end();
    if (signal.aborted && last) {
      const { resumption, withoutOption } = await import('../session/resumption.ts');
      // Hashes that were compared are behind the place where it goes on.
      const ahead = kept.filter(({ height }) => height > last!.height);
      const words = withoutOption(process.argv.slice(2), '--against');
      const line = resumption(words, { '--from': String(last.height + 1) });
      const against = [last, ...ahead].map(({ height, hash }) => ` --against ${height}:${hash}`);
      terminal.complain(`All fits up to height ${last.height}. Go on with: ${line}${against.join('')}`);
    }
    throw error;
  }
}

function readCommits(app: App, signal: AbortSignal): ReadCommits {
  const path = apiPath('apps', app.id, 'commits');
  return (place) => {
    const query = { texts: true, limit: pageCommits, ...place };
    return app.request<CommitPage>('GET', path, { query, signal });
  };
}

async function report(
  { terminal, options }: Invocation<VerifyOptions>,
  from: number,
  { last, commits, counts, isStartTaken }: VerifiedChain,
): Promise<void> {
  await printObject(terminal, {
    from,
    to: last.height,
    commits,
    documents: counts.documents,
    texts_verified: counts.texts,
    texts_gone: counts.withoutText,
    hashes_gone: counts.withoutHash,
    blobs: counts.blobs,
    against: `${last.height}:${last.hash}`,
  });
  if (commits === 0 && last.height === 0) return terminal.say('There is no commit yet.');
  if (counts.withoutText > 0) {
    terminal.say(`Documents whose text was erased or purged: ${counts.withoutText}. Their hashes fit into the chain.`);
  }
  if (counts.withoutHash > 0) {
    terminal.say(
      `Documents of which not even a hash is there: ${counts.withoutHash}. What their commits contained is taken from the service.`,
    );
  }
  if (isStartTaken) {
    terminal.say(
      `The hash of height ${from - 1} was taken from the service: --against ${from - 1}:… compares it with yours.`,
    );
  }
  const than = (options.against ?? []).length > 0 ? ', and has the hash that you kept' : '';
  terminal.say(
    `The chain is whole${than}. Keep its end, and compare it later: granary verify --against ${last.height}:${last.hash}`,
  );
}

function heightOf(option: string, text: string): number {
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  throw new UsageError(`${option} "${text}" is not a height`, `Heights are numbers from 1 on: ${option} 42.`);
}
