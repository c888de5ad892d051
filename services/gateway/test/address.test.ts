import { request } from 'node:http';
import { gatewayConfig } from '@granary/gateway/config';
import { startGateway, type RunningGateway } from '@granary/gateway/service';
import { readConfig, type Environment } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';

const nowhere = '127.0.0.1:1';
const running: RunningGateway[] = [];
afterAll(() => Promise.all(running.map((gateway) => gateway.stop())));

async function start(environment: Environment): Promise<RunningGateway> {
  const names = ['DATA', 'BLOBS', 'FINANCE', 'PAYMENTS', 'TASKS'];
  const config = readConfig(gatewayConfig, {
    PORT: '0',
    OPERATOR_KEY: 'the key of the operator',
    BLOBS_HTTP_ADDRESS: nowhere,
    INTERNAL_SECRET: 'a secret that the services share with each other',
    ...Object.fromEntries(names.map((name) => [`${name}_ADDRESS`, nowhere])),
    ...environment,
  });
  const gateway = await startGateway(config, { log: createLogger('gateway', 'silent') });
  running.push(gateway);
  return gateway;
}

/** The address in the page at /docs for a client that sends these headers. */
async function shownTo({ port }: RunningGateway, headers: Record<string, string>): Promise<string | undefined> {
  const page = await new Promise<string>((resolve, reject) => {
    const asked = request({ port, host: '127.0.0.1', path: '/docs', headers }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (text += chunk)).on('end', () => resolve(text));
    });
    asked.on('error', reject).end();
  });
  return /<code>URL=([^<]*)<\/code>/.exec(page)?.[1];
}

const forwarded = { Host: 'inner:8080', 'X-Forwarded-Host': 'api.example.com', 'X-Forwarded-Proto': 'https' };

test('the page at /docs shows the address that the request names', async () => {
  const gateway = await start({});
  expect(await shownTo(gateway, { Host: 'granary.lan:18471' })).toBe('http://granary.lan:18471');
  expect(await shownTo(gateway, { Host: '[::1]:8080' })).toBe('http://[::1]:8080');
});

test('a Host that is no host is not shown', async () => {
  const gateway = await start({});
  for (const host of ['a"><script>x', 'a;rm -rf x', '$(id)', 'a b', '`id`', '-a', "x'y", 'a/b', `${'x'.repeat(300)}`]) {
    const shown = await shownTo(gateway, { Host: host });
    expect([host, shown]).toEqual([host, gateway.url]);
  }
});

test('forwarded headers count for the address only as far as TRUST_PROXY says', async () => {
  expect(await shownTo(await start({}), forwarded)).toBe('http://inner:8080');
  expect(await shownTo(await start({ TRUST_PROXY: '10.0.0.0/8' }), forwarded)).toBe('http://inner:8080');
  expect(await shownTo(await start({ TRUST_PROXY: 'loopback' }), forwarded)).toBe('https://api.example.com');
  const evil = { ...forwarded, 'X-Forwarded-Host': 'x"y', 'X-Forwarded-Proto': 'javascript' };
  const trusting = await start({ TRUST_PROXY: 'true' });
  expect(await shownTo(trusting, evil)).toBe(trusting.url);
});

test('PUBLIC_URL is shown whatever the request names', async () => {
  const gateway = await start({ PUBLIC_URL: 'https://api.example.com/granary/', TRUST_PROXY: 'true' });
  expect(await shownTo(gateway, { ...forwarded, 'X-Forwarded-Host': 'other.example.com' })).toBe(
    'https://api.example.com/granary',
  );
});

test('a TRUST_PROXY that names no address is refused in a sentence', async () => {
  await expect(start({ TRUST_PROXY: 'proxy.lan' })).rejects.toThrow(/^The configuration is wrong:\n {2}TRUST_PROXY: /);
});

test.each(['ftp://x', 'https://x/$(id)', 'https://x/"', 'x'])('PUBLIC_URL is refused when it is %s', (url) => {
  expect(() => readConfig(gatewayConfig, { PUBLIC_URL: url })).toThrow('  PUBLIC_URL: ');
});
