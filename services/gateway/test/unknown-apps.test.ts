import { notFound } from '@granary/shared/errors';
import { startWithData } from './support/stub-data';

test('requests for blobs of an app that does not exist share one look-up of the app, and ask for nothing else', async () => {
  const calls: string[] = [];
  const handler = (name: string) => () => {
    calls.push(name);
    return Promise.reject(notFound('APP_NOT_FOUND', 'There is no app nothere'));
  };
  const gateway = await startWithData({
    getApplication: handler('getApplication'),
    getCollection: handler('getCollection'),
  });
  try {
    const url = `${gateway.url}/api/apps/nothere/blobs/files/0190a5c6-0000-7000-8000-000000000000`;
    const answers = await Promise.all(Array.from({ length: 10 }, () => fetch(url)));
    for (const answer of answers) {
      expect(answer.status).toBe(404);
      expect(await answer.json()).toMatchObject({ code: 'APP_NOT_FOUND' });
    }
    expect(calls).toEqual(['getApplication']);
  } finally {
    await gateway.stop();
  }
});
