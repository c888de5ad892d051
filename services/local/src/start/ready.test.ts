import { readyLines } from './ready';

test('the calls to begin with use the address of this machine, and the public one is named beside it', () => {
  const lines = readyLines({
    url: 'http://127.0.0.1:8080',
    environment: { PUBLIC_URL: 'https://api.example.com/' },
    host: '0.0.0.0',
    dataDir: '.granary',
    operatorKey: 'operator',
    isKeyKept: true,
    app: { appId: 'demo', key: 'app_key' },
    showKeys: true,
  });
  expect(lines).toContain('  public address, for clients elsewhere: https://api.example.com');
  const calls = lines.filter((line) => line.startsWith('curl '));
  expect(calls).toHaveLength(5);
  for (const call of calls) expect(call).toContain('http://127.0.0.1:8080/');
  expect(lines.filter((line) => line.includes('api.example.com'))).toHaveLength(1);
});
