import { newApp, randomText, transports, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';

describe.each(transports)('the buffer of writes (%s)', (transport) => {
  let granary: Granary;
  beforeAll(async () => {
    granary = await startGranary(transport, { settings: { data: { WRITE_BUFFER_BYTES: '1048576' } } });
  });
  afterAll(() => granary.stop());

  test('writes of many times its size are stored as it is freed, or refused with 503 and change nothing', async () => {
    const apps = await Promise.all(Array.from({ length: 4 }, () => newApp(granary)));
    const body = () => Array.from({ length: 5 }, () => ({ text: randomText(600_000) }));
    const answers = await Promise.all(
      Array.from({ length: 24 }, async (_, at) => {
        const app = apps[at % 4]!;
        return { app, answer: await app.call('POST', '/store', { root: `${app.appId}::docs`, data: body() }) };
      }),
    );
    const refused = answers.filter(({ answer }) => answer.status === 503);
    for (const { answer } of refused) expect(answer.headers.get('retry-after')).toMatch(/^\d+$/);
    expect(answers.filter(({ answer }) => ![202, 503].includes(answer.status))).toEqual([]);
    for (const app of apps) {
      const stored = answers.filter((one) => one.app === app && one.answer.status === 202).length;
      expect((await app.list('docs', { limit: 1 })).body.total ?? 0).toBe(stored * 5);
    }
    await apps[0]!.store('later', [{ n: 1 }]);
  });
});
