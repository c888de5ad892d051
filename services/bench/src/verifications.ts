import type { SchemeName, VerificationsCalls } from './granary/verifications';
import { startProcess, type Child } from './processes';
import { namesOf, recordOf } from './records';
import { median, table } from './report';
import type { Lengths, Tools } from './tools';

type RowName = SchemeName | 'webAssembly';

interface Row {
  title: string;
  /** The row that it is compared with. */
  beside?: RowName;
  /** The least ratio to the rate of that row, and the least number of verifications per second of a core. */
  wanted?: { ratio: number; perSecond?: number };
}

/**
 * Verifications per second of processor time, and the ratio to the row that it is compared with in the same round, as
 * medians.
 */
interface VerificationsResult {
  perSecond: number;
  ratio?: number;
}

const wantedBeside = { ratio: 10, perSecond: 5_000 };

/** The rows: the schemes that are verified, and the rows that they are compared with. */
const schemes: Record<RowName, Row> = {
  official: { title: 'official facilitator, EVM' },
  evm: { title: 'EIP-3009 on EVM chains', beside: 'official', wanted: wantedBeside },
  webAssembly: { title: 'the same without a native build', beside: 'evm', wanted: { ratio: 0.25 } },
  cosmos: { title: 'signed MsgSend on Cosmos chains', beside: 'official', wanted: wantedBeside },
  officialSolana: { title: 'official facilitator, Solana' },
  solana: { title: 'TransferChecked on Solana', beside: 'officialSolana' },
};

export const verificationsTitle = 'verifications: x402 payments a second of a core, beside the official facilitators';

/** Measures how fast payments are verified, by scheme. */
export async function measureVerifications(
  { onStart }: Tools,
  { rounds, seconds }: Lengths,
): Promise<Record<RowName, VerificationsResult>> {
  const [native, inWebAssembly] = await Promise.all([
    startVerifier(onStart, { webAssembly: false }),
    startVerifier(onStart, { webAssembly: true }),
  ]);
  const names = namesOf(schemes);
  const results: Array<Record<RowName, number>> = [];
  // The first round is the warm-up.
  for (let round = -1; round < rounds; round++) {
    const rates: Partial<Record<RowName, number>> = {};
    for (const name of names) {
      const child = name === 'webAssembly' ? inWebAssembly : native;
      const scheme = name === 'webAssembly' ? 'evm' : name;
      rates[name] = await child.call('run', { scheme, seconds });
    }
    if (round >= 0) results.push(recordOf(names, (name) => rates[name]!));
  }
  return recordOf(names, (name) => {
    const { beside } = schemes[name];
    return {
      perSecond: median(results.map((rates) => rates[name])),
      ...(beside && { ratio: median(results.map((rates) => rates[name] / rates[beside])) }),
    };
  });
}

async function startVerifier(
  onStart: Tools['onStart'],
  settings: { webAssembly: boolean },
): Promise<Child<VerificationsCalls>> {
  const child = startProcess<VerificationsCalls>('granary/verifications.js');
  onStart(child);
  await child.call('start', settings);
  return child;
}

/** Formats the table of results. */
export function verificationsLines(results: Record<RowName, VerificationsResult>): string[] {
  const rows = namesOf(schemes).map((name) => {
    const { title, wanted: target } = schemes[name];
    const { perSecond, ratio } = results[name];
    const parts = target && [target.perSecond && `${target.perSecond.toLocaleString('en-US')}/s`, `× ${target.ratio}`];
    return [
      title,
      `${Math.round(perSecond).toLocaleString('en-US')}/s`,
      ratio === undefined ? '' : `× ${ratio.toFixed(ratio < 1 ? 2 : 1)}`,
      parts ? parts.filter(Boolean).join(', ') : '',
    ];
  });
  return ['', verificationsTitle, ...table([['', '', '', 'wanted'], ...rows])];
}
