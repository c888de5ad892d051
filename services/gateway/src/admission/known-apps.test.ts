import { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { notFound } from '@granary/shared/errors';
import { newCall } from '@granary/shared/rpc/types';
import { overloaded } from '../errors/problem';
import { KnownApps } from './known-apps';

const call = () => newCall('test', 60_000);

/** Look-ups that stay under way until they are answered; each is answered once. */
function pendingLookUps(limits: { concurrency: number; queueMaxPerFlow: number }) {
  const asked: string[] = [];
  const answers: Array<() => void> = [];
  const data = {
    getApplication: ({ appId }: { appId?: string }) =>
      new Promise((resolve, reject) => {
        asked.push(appId!);
        answers.push(() =>
          appId!.startsWith('invented')
            ? reject(notFound('APP_NOT_FOUND', 'There is no such app'))
            : resolve({ application: undefined }),
        );
      }),
  };
  const limiter = new FairScheduler({ ...limits, queueMax: 100, timeoutMs: 60_000, refusal: overloaded });
  return { asked, answers, apps: new KnownApps(data as never, limiter) };
}

test('a client whose own look-ups fill its queue is refused, and nobody else who asks for the same app', async () => {
  const { apps, answers } = pendingLookUps({ concurrency: 1, queueMaxPerFlow: 1 });
  const invented = ['a', 'b'].map((name) => apps.find(`invented-${name}`, 'stranger', call()));
  const refused = apps.find('films', 'stranger', call());
  const served = apps.find('films', 'reader', call());
  await expect(refused).rejects.toMatchObject({ reason: 'OVERLOADED' });
  const outcomes = Promise.allSettled([...invented, served]);
  for (let at = 0; at < 3; at++) {
    while (!answers[at]) await new Promise((resolve) => setImmediate(resolve));
    answers[at]!();
  }
  expect((await outcomes).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled']);
  expect(apps.has('films')).toBe(true);
});

test('an app that was found for one client is not looked up again for another who waits', async () => {
  const { apps, answers, asked } = pendingLookUps({ concurrency: 1, queueMaxPerFlow: 5 });
  const both = [apps.find('films', 'one', call()), apps.find('films', 'other', call())];
  answers[0]!();
  await Promise.all(both);
  expect(asked).toEqual(['films']);
});
