import { partsOf, type SeededPart } from '@granary/testing/seeds';
import { seededRandom } from '@granary/testing/random';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { alter, pick, type Alteration } from '../support/altered-request';
import type { Answer, Granary } from '../support/granary';
import { variants } from '../support/granary-settings';
import { startGranary } from '../support/own-granary';
import { RequestSubject } from '../support/request-subject';
import { validRequests } from '../support/valid-requests';

const requests = size({ run: 2_000, long: 20_000 });
const parts = partsOf('front-door/altered-requests', requests);

/** Objects that take members with other names, and why. */
const openObjects: Readonly<Record<string, string>> = {
  'createIndex.options': 'published clients send options that older servers had',
  createIndexOfCollection: 'published clients send members that older servers had',
  'createIndexOfCollection.index_config': 'published clients send members that older servers had',
  createRelation: 'published clients send members that older servers had',
  verifyPayment: 'facilitators of x402 are sent what their versions add',
  settlePayment: 'facilitators of x402 are sent what their versions add',
};

let granary: Granary;
let subject: RequestSubject;
beforeAll(async () => {
  granary = await startGranary('direct', { settings: variants.simulated });
  subject = await RequestSubject.prepare(granary);
});
afterAll(() => granary?.stop());

test('objects that take members with any name are those of the list', () => {
  expect(subject.described.openObjects().sort()).toEqual(Object.keys(openObjects).sort());
});

/** Whether nothing of a request was done: it is refused, or each operation of its batch is. */
function isRefused({ status, text }: Answer): boolean {
  if (status >= 400) return true;
  const answer: unknown = text.startsWith('[') ? JSON.parse(text) : undefined;
  return Array.isArray(answer) && answer.every((one) => !(one as { success: boolean }).success);
}

/** What is wrong with the answer to an altered request; undefined where nothing is. */
function faultOf(alteration: Alteration, answer: Answer, changed: number): string | undefined {
  if (answer.status >= 500) return 'an error of the service';
  if (isRefused(answer) && changed !== 0) return 'a document was changed although the request is refused';
  if (answer.status >= 400 && typeof answer.body['error'] !== 'string') return 'a refusal without a sentence';
  if (alteration.isUnknown && answer.status < 300 && alteration.isClosed)
    return 'a member that nobody knows was accepted';
  if (alteration.kind === 'reordered' && answer.status === 400) return 'the order of members means something';
  return undefined;
}

async function tryPart({ seed, cases }: SeededPart): Promise<object[]> {
  const random = seededRandom(seed);
  const faults: object[] = [];
  let versions = await subject.versions();
  for (let number = 0; number < cases; number += 1) {
    const id = pick(random, Object.keys(validRequests));
    const request = await subject.request(id, Math.floor(random() * validRequests[id]!.length));
    const alteration = alter(request, random, subject.described);
    const answer = await subject.send(alteration.request);
    const after = await subject.versions();
    const fault = faultOf(alteration, answer, after - versions);
    versions = after;
    if (fault !== undefined) {
      const { query, body } = alteration.request;
      faults.push({
        seed,
        number,
        fault,
        id,
        alteration: alteration.text,
        query,
        body,
        status: answer.status,
        text: answer.text,
      });
    }
  }
  return faults;
}

test.each(parts)(
  '$cases requests that differ from a valid one by one member are answered without an error, and change nothing where they are refused (seed $seed)',
  async (part) => {
    expect(await tryPart(part)).toEqual([]);
  },
  sizedLimitMs(limitMs(300_000)),
);
