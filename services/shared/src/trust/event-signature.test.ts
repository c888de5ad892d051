import type { Event } from '../gen/granary/events/v1/Event';
import { createLogger } from '../logger';
import { trustEnvironments } from './environments';
import type { ServiceName } from './services';
import { openTrust } from './trust';

const log = createLogger('test', 'silent');
const event: Event = {
  position: { epoch: '1', xid: '22', pos: '3' },
  topic: 'usage',
  key: 'films',
  aggregateId: 'collection/7',
  aggregateSequence: '4',
  type: 'app.deleted',
  payload: Buffer.from('{"app_id":"films"}'),
  at: '2026-01-01T00:00:00.000Z',
  id: '0190a5c6-0000-7000-8000-000000000000',
  signatures: '',
};
const environments = trustEnvironments('a root secret of more than 32 characters');
const trustOf = (service: ServiceName, changes: Record<string, string> = {}) =>
  openTrust(service, { ...environments[service], ...changes }, log);

const signed = (changes: Partial<Event> = {}, by = trustOf('data')): Event => {
  const all = { ...event, ...changes };
  return { ...all, signatures: by.signer.sign(all, ['blobs', 'finance-data']) };
};

test('an event is believed by the services it was signed for, and by no other one', () => {
  expect(trustOf('blobs').verifier('data').isSigned(signed())).toBe(true);
  expect(trustOf('finance').verifier('data').isSigned(signed())).toBe(true);
  expect(trustOf('tasks').verifier('data').isSigned(signed())).toBe(false);
  expect(trustOf('finance').verifier('blobs').isSigned(signed())).toBe(false);
  // A reader can forge for itself alone: what finance knows says nothing to blobs.
  const byFinance = openTrust(
    'data',
    { TRUSTED_CALLERS: environments.data['TRUSTED_CALLERS']!.split(',').find((each) => each.startsWith('finance'))! },
    log,
  );
  expect(trustOf('blobs').verifier('data').isSigned(signed({}, byFinance))).toBe(false);
});

test('with one secret for all it is the same', () => {
  const shared = { INTERNAL_SECRET: 'one secret for all of the services' };
  const other = { INTERNAL_SECRET: 'another secret for all the services' };
  const verifier = openTrust('finance', shared, log).verifier('data');
  expect(verifier.isSigned(signed({}, openTrust('data', shared, log)))).toBe(true);
  expect(verifier.isSigned(signed({}, openTrust('data', other, log)))).toBe(false);
});

test.each<[string, Partial<Event>]>([
  ['topic', { topic: 'tasks' }],
  ['key', { key: 'shop' }],
  ['aggregate', { aggregateId: 'collection/8' }],
  ['sequence', { aggregateSequence: '5' }],
  ['type', { type: 'collection.deleted' }],
  ['id', { id: '0190a5c6-0000-7000-8000-000000000001' }],
  ['time', { at: '2026-01-01T00:00:00.001Z' }],
  ['position', { position: { epoch: '1', xid: '22', pos: '4' } }],
  ['payload', { payload: Buffer.from('{"app_id":"shops"}') }],
  ['trace', { trace: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }],
])('an event whose %s was changed is not believed', (_, changes) => {
  expect(
    trustOf('finance')
      .verifier('data')
      .isSigned({ ...signed(), ...changes }),
  ).toBe(false);
});

test.each(['', 'x', ',', `${'0'.repeat(8)}.`, signed().signatures.slice(0, -1), `${'a.b,'.repeat(10_000)}`])(
  'what is no signature is not believed and throws nothing: %.20s',
  (signatures) => {
    expect(
      trustOf('finance')
        .verifier('data')
        .isSigned({ ...event, signatures }),
    ).toBe(false);
  },
);

test('while a secret is being changed events are believed by the reader before and after it', () => {
  const next = trustEnvironments('another root secret of more than 32 characters');
  const both = openTrust(
    'data',
    { TRUSTED_CALLERS: `${environments.data['TRUSTED_CALLERS']},${next.data['TRUSTED_CALLERS']}` },
    log,
  );
  const inBetween = signed({}, both);
  expect(trustOf('finance').verifier('data').isSigned(inBetween)).toBe(true);
  expect(openTrust('finance', next.finance, log).verifier('data').isSigned(inBetween)).toBe(true);
});

test('a page of an outbox is believed for its reader, for what was asked, and for all that was answered', () => {
  const [after, far] = [
    { epoch: '1', xid: '22', pos: '3' },
    { epoch: '1', xid: '99', pos: '3' },
  ];
  const page = { consumer: 'finance-data', topics: ['usage'], after, next: after, events: [{ id: 'a' }, { id: 'b' }] };
  const signatures = trustOf('data').signer.signPage(page, 'finance-data');
  const verifier = trustOf('finance').verifier('data');
  expect(verifier.isPageSigned(page, signatures)).toBe(true);
  const others = [
    { next: far },
    { after: far },
    { consumer: 'finance-blobs' },
    { topics: [] },
    { events: [{ id: 'b' }] },
  ];
  for (const changes of others) expect(verifier.isPageSigned({ ...page, ...changes }, signatures)).toBe(false);
});
