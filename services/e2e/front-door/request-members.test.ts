import type { EmptyMeaning } from '../support/request-member';
import { requestMembers } from '../support/request-members';
import { RequestSubject, type SubjectRequest } from '../support/request-subject';
import { validRequests } from '../support/valid-requests';
import type { DescribedMember } from '../support/described-requests';
import { startGranary } from '../support/own-granary';
import { variants } from '../support/granary-settings';
import type { Answer, Granary } from '../support/granary';

let granary: Granary;
let subject: RequestSubject;
beforeAll(async () => {
  granary = await startGranary('direct', { settings: variants.simulated });
  subject = await RequestSubject.prepare(granary);
});
afterAll(() => granary?.stop());

const empties: Array<[text: string, value: unknown]> = [
  ['null', null],
  ['{}', {}],
  ['[]', []],
  ['""', ''],
];

const isAccepted = ({ status }: Answer): boolean => status >= 200 && status < 300;
const isRefused = ({ status, body }: Answer): boolean =>
  status >= 400 && status < 500 && typeof body['error'] === 'string' && typeof body['code'] === 'string';

/**
 * The object of a body that has, or may have, the member at an address, and the name of that; undefined without one.
 */
function holderOf(
  body: unknown,
  address: readonly string[],
): { object: Record<string, unknown>; name: string } | undefined {
  let value = body;
  for (const step of address.slice(0, -1)) {
    if (typeof value !== 'object' || value === null) return undefined;
    const [first] = Object.keys(value);
    const key = step === '[]' || step === '*' ? first : step;
    value = key === undefined ? undefined : (value as Record<string, unknown>)[key];
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return { object: value as Record<string, unknown>, name: address.at(-1)! };
}

/** A valid request with the member, or else one that may have it. */
async function requestWith({
  operationId,
  address,
  isParameter,
}: DescribedMember): Promise<SubjectRequest | undefined> {
  let possible: SubjectRequest | undefined;
  for (let at = 0; at < validRequests[operationId]!.length; at += 1) {
    const request = await subject.request(operationId, at);
    const holder = isParameter
      ? { object: (request.query ??= {}), name: address[0]! }
      : holderOf(request.body, address);
    if (holder && holder.name in holder.object) return request;
    if (holder) possible ??= request;
  }
  return possible;
}

function setMember(request: SubjectRequest, { address, isParameter }: DescribedMember, value: unknown): void {
  if (isParameter) request.query![address[0]!] = value as string;
  else {
    const { object, name } = holderOf(request.body, address)!;
    object[name] = value;
  }
}

test('each member of each request has a row, and each row is of a member', () => {
  const names = subject.described.members().map(({ name }) => name);
  expect(Object.keys(requestMembers).sort()).toEqual(names.sort());
});

test('each operation with members has valid requests, which are accepted', async () => {
  const operations = [...new Set(subject.described.members().map(({ operationId }) => operationId))];
  expect(Object.keys(validRequests).sort()).toEqual(operations.sort());
  for (const [id, makers] of Object.entries(validRequests)) {
    for (const at of makers.keys()) {
      const answer = await subject.send(await subject.request(id, at));
      const seen = { id, at, isAccepted: isAccepted(answer), refusal: isAccepted(answer) ? '' : answer.text };
      expect(seen).toEqual({ id, at, isAccepted: true, refusal: '' });
    }
  }
});

test('nothing that guards, limits or pays takes an empty value, but where it has a meaning by name', () => {
  const open = Object.entries(requestMembers).filter(
    ([, { kind, meanings }]) => kind !== 'other' && meanings.some((meaning) => meaning !== 'refused'),
  );
  expect(open.filter(([, { because }]) => because === undefined).map(([name]) => name)).toEqual([]);
  const explained = Object.entries(requestMembers).filter(([, { because }]) => because !== undefined);
  expect(explained.map(([name]) => name).filter((name) => !open.some(([other]) => other === name))).toEqual([]);
});

/** What an empty value can mean where it is answered so. */
function meaningsShown(answer: Answer): EmptyMeaning[] {
  if (isRefused(answer)) return ['refused'];
  return isAccepted(answer) ? ['absent', 'value'] : [];
}

test('an empty value of each member means what its row says', async () => {
  const wrong: object[] = [];
  for (const member of subject.described.members()) {
    const { meanings } = requestMembers[member.name] ?? { meanings: [] };
    const values = member.isParameter ? [empties[3]!] : empties;
    for (const [at, [text, value]] of values.entries()) {
      const request = await requestWith(member);
      if (!request) throw new Error(`No valid request may have ${member.name}`);
      setMember(request, member, value);
      const answer = await subject.send(request);
      const shown = meaningsShown(answer);
      if (!shown.includes(meanings[at]!)) {
        wrong.push({ member: member.name, value: text, row: meanings[at], status: answer.status, text: answer.text });
      }
    }
  }
  expect(wrong).toEqual([]);
});
