import * as fc from 'fast-check';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import { ExactSvmSchemeV1 } from '@x402/svm/exact/v1/facilitator';
import { checkProperty, checkUntil } from '@granary/testing/properties';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { parseSolanaAssets } from '../src/schemes/solana/assets';
import { Verifier } from '../src/verify/verifier';
import { keys } from './support/solana-draft';
import { mutatedEnvelope, mutatedPayments, type SolanaEnvelope } from './support/solana-mutations';
import { stricter } from './support/solana-stricter';
import { SolanaExact } from '../src/schemes/solana/verify';

const paymentCount = size({ run: 70, long: 10_000 });
const feePayers = [keys.feePayer.address, keys.otherFeePayer.address];
const verifier = new Verifier(
  [new SolanaExact({ assets: parseSolanaAssets('usdc-test'), feePayers })],
  () => new Date(),
);

// The official facilitator writes what it cannot decode.
beforeAll(() => jest.spyOn(console, 'error').mockImplementation());
afterAll(() => jest.restoreAllMocks());

/** The chain, which finds nothing wrong. */
const signer = { getAddresses: () => feePayers, simulateTransaction: () => Promise.resolve() };
const official = { 1: new ExactSvmSchemeV1(signer as never), 2: new ExactSvmScheme(signer as never) };

/** What it throws is no approval either. */
async function officialReason({ x402Version, paymentPayload, paymentRequirements }: SolanaEnvelope) {
  const scheme = official[x402Version];
  try {
    const found = await scheme.verify(paymentPayload as never, paymentRequirements as never);
    return found.isValid ? undefined : found.invalidReason!;
  } catch {
    return 'thrown';
  }
}

const verify = (envelope: SolanaEnvelope) => verifier.verify(Buffer.from(JSON.stringify(envelope)));

test.each(stricter)('stricter than the official facilitator: %s', async (message, mutation, version = undefined) => {
  const envelope = await mutatedEnvelope(version ?? 2, [mutation]);
  expect(await officialReason(envelope)).toBeUndefined();
  expect(await verify(envelope)).toMatchObject({ isValid: false, invalidMessage: message });
});

test(
  'a payment that the official facilitator refuses is refused, and one that it accepts is valid but for the rules above',
  async () => {
    const messages = stricter.map(([message]) => message);
    const reasonsInCommon = new Set<string>();
    let valid = 0;
    const check = fc.asyncProperty(mutatedPayments, async ([version, mutations]) => {
      const envelope = await mutatedEnvelope(version, mutations);
      const [ours, theirs] = [await verify(envelope), await officialReason(envelope)];
      if (ours.isValid) {
        expect(theirs).toBeUndefined();
        valid += 1;
      } else if (theirs === undefined) expect(messages).toContain(ours.invalidMessage);
      else if (theirs === ours.invalidReason) reasonsInCommon.add(theirs);
    });
    await checkProperty('payments/solana-official', paymentCount, check);
    // That it has tried payments of all kinds.
    const reasonsMin = Math.min(11, Math.ceil(paymentCount / 12));
    await checkUntil('payments/solana-official', 2_000, check, () => reasonsInCommon.size >= reasonsMin);
    expect(valid).toBeGreaterThan(paymentCount / 10);
    expect(reasonsInCommon.size).toBeGreaterThanOrEqual(reasonsMin);
  },
  sizedLimitMs(limitMs(180_000)),
);
