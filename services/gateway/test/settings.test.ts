import { readConfig } from '@granary/shared/config';
import { gatewayConfig } from '@granary/gateway/config';

const needed = { OPERATOR_KEY: 'the key of the operator', BLOBS_HTTP_ADDRESS: '127.0.0.1:1' };

/** The sentence that refuses a value of CORS_ORIGINS, or the origins that it allows. */
function readOrigins(text: string): unknown {
  try {
    return readConfig(gatewayConfig, { ...needed, CORS_ORIGINS: text }).CORS_ORIGINS;
  } catch (error) {
    return (error as Error).message;
  }
}

test.each([
  ['*', '*'],
  ['https://app.example.com', ['https://app.example.com']],
  ['http://localhost:3000, https://App.Example.com:443/', ['http://localhost:3000', 'https://app.example.com']],
  ['capacitor://localhost,https://[::1]:8443', ['capacitor://localhost', 'https://[::1]:8443']],
])('CORS_ORIGINS=%s allows the origins as browsers name them', (text, origins) => {
  expect(readOrigins(text)).toEqual(origins);
});

const rule = 'is no origin, which is a scheme, a host and perhaps a port';

test.each([
  ['app.example.com', `"app.example.com" ${rule}; did you mean https://app.example.com?`],
  ['localhost:3000', `"localhost:3000" ${rule}; did you mean https://localhost:3000?`],
  ['https://a.example,b.example', `"b.example" ${rule}; did you mean https://b.example?`],
  ['https://a.example/app', `"https://a.example/app" ${rule}`],
  ['https://*.example.com', `"https://*.example.com" ${rule}`],
  ['https://a.example,', `"" ${rule}`],
  ['https://a.example,*', `"*" ${rule}`],
  ['null', `"null" ${rule}; did you mean https://null?`],
])('CORS_ORIGINS=%s, which would match no browser, is refused', (text, problem) => {
  expect(readOrigins(text)).toBe(
    `The configuration is wrong:\n  CORS_ORIGINS: ${problem} (it is ${JSON.stringify(text)})`,
  );
});

test('a wrong value is shown, cut where it is long, and not at all where it may be a secret', () => {
  const read = (environment: Record<string, string>) => () => readConfig(gatewayConfig, { ...needed, ...environment });
  expect(read({ PORT: 'http' })).toThrow('PORT: a whole number from 0 to 65535 is expected (it is "http")');
  expect(read({ PORT: '9'.repeat(101) })).toThrow(` (it is "${'9'.repeat(100)}…")`);
  expect(read({ PUBLIC_URL: 'api.example.com' })).toThrow('(it is "api.example.com")');
  expect(read({ OPERATOR_KEY: 'too short' })).toThrow(/OPERATOR_KEY: at least 16 characters are needed$/);
});
