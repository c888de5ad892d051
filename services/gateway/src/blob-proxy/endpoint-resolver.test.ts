import { EndpointResolver, type Endpoint } from './endpoint-resolver';

const at = (host: string): Endpoint => ({ host, port: 5_001, servername: 'blobs' });

/** A resolver whose name leads to `hosts`; none: it cannot be resolved. */
function resolverOf(...hosts: string[]) {
  const state = { nowMs: 0, hosts };
  const resolveOne = () =>
    state.hosts.length > 0 ? Promise.resolve(state.hosts.map(at)) : Promise.reject(new Error('not found'));
  const resolver = new EndpointResolver('blobs:5001', resolveOne, () => state.nowMs);
  const found = async () => (await resolver.candidates()).map(({ host }) => host).sort();
  return { state, found };
}

test('a gateway that was idle goes to the copies that there are now', async () => {
  const { state, found } = resolverOf('10.0.0.1', '10.0.0.2');
  expect(await found()).toEqual(['10.0.0.1', '10.0.0.2']);
  state.hosts = ['10.0.0.3'];
  state.nowMs = 5_000;
  expect(await found()).toEqual(['10.0.0.3']);
});

test('while a name cannot be resolved the copies that were found last remain', async () => {
  const { state, found } = resolverOf('10.0.0.1');
  await found();
  state.hosts = [];
  for (state.nowMs of [5_000, 10_000, 60_000]) expect(await found()).toEqual(['10.0.0.1']);
  state.hosts = ['10.0.0.2'];
  state.nowMs = 120_000;
  expect(await found()).toEqual(['10.0.0.2']);
});

test('a name that was never resolved is refused as UNAVAILABLE', async () => {
  await expect(resolverOf().found()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
});
