import { startProcess } from './processes.mjs';
import { median, table } from './report.mjs';

const wantedBeside = { ratio: 10, perSecond: 5_000 };

/** What is verified in which process, and beside what; `wanted`: how many times as fast, and a second of a core. */
const schemes = {
  official: { title: 'official facilitator, EVM' },
  evm: { title: 'EIP-3009 on EVM chains', beside: 'official', wanted: wantedBeside },
  webAssembly: { title: 'the same without a native build', scheme: 'evm', beside: 'evm', wanted: { ratio: 0.25 } },
  cosmos: { title: 'signed MsgSend on Cosmos chains', beside: 'official', wanted: wantedBeside },
  officialSolana: { title: 'official facilitator, Solana' },
  solana: { title: 'TransferChecked on Solana', beside: 'officialSolana' },
};

export const verificationsTitle = 'verifications: x402 payments a second of a core, beside the official facilitators';

/**
 * Verifications a second of processor time by scheme, with the ratio to what is beside it in the same round; medians.
 */
export async function measureVerifications({ started }, { rounds, seconds }) {
  const [native, inWebAssembly] = await Promise.all([
    startVerifier(started),
    startVerifier(started, { webAssembly: true }),
  ]);
  const results = [];
  // The first round is the warm-up.
  for (let round = -1; round < rounds; round++) {
    const rates = {};
    for (const [name, { scheme = name }] of Object.entries(schemes)) {
      const child = name === 'webAssembly' ? inWebAssembly : native;
      rates[name] = await child.call('run', { scheme, seconds });
    }
    if (round >= 0) results.push(rates);
  }
  return Object.fromEntries(
    Object.entries(schemes).map(([name, { beside }]) => [
      name,
      {
        perSecond: median(results.map((rates) => rates[name])),
        ...(beside && { ratio: median(results.map((rates) => rates[name] / rates[beside])) }),
      },
    ]),
  );
}

async function startVerifier(started, settings) {
  const child = startProcess('granary/verifications.mjs');
  started(child);
  await child.call('start', settings);
  return child;
}

/** Formats the table of results. */
export function verificationsLines(measured) {
  const rows = Object.entries(schemes).map(([name, { title, wanted }]) => {
    const { perSecond, ratio } = measured[name];
    const parts = wanted && [wanted.perSecond && `${wanted.perSecond.toLocaleString('en-US')}/s`, `× ${wanted.ratio}`];
    return [
      title,
      `${Math.round(perSecond).toLocaleString('en-US')}/s`,
      ratio === undefined ? '' : `× ${ratio.toFixed(ratio < 1 ? 2 : 1)}`,
      parts ? parts.filter(Boolean).join(', ') : '',
    ];
  });
  return ['', verificationsTitle, ...table([['', '', '', 'wanted'], ...rows])];
}
