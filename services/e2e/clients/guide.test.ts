import { withPlayMoney } from '@granary/local/start/play-money';
import { describeWith, pythonForTests } from '@granary/testing/stack';
import { newApp, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { readPage, runPage } from './guide-page';

const playMoney = { X402_PAY_TO: String(withPlayMoney({})['X402_PAY_TO']) };

// Its own, since the pages name the app, and what is in its wallet.
let granary: Granary;
afterEach(() => granary?.stop());

test('the examples of the guide, payouts.md and prices.md run in their order, and are answered as the pages show', async () => {
  granary = await startGranary('direct');
  const { key } = await newApp(granary, 'demo');
  const list = await readPage('guide/README.md');
  // `](../…)` are pages with examples of their own.
  const guide = [...list.matchAll(/\]\(([a-z-]+\.md)\)/g)].map(([, name]) => `guide/${name!}`);
  const counts = { commands: 0, answers: 0 };
  for (const page of ['money/payouts.md', ...guide, 'money/prices.md']) {
    const { statuses, shown } = await runPage(granary, page, key);
    const refused = statuses.map((line) => line.slice(0, 3)).filter((status) => !status.startsWith('2'));
    expect({ page, refused }).toEqual({ page, refused: page === 'money/prices.md' ? ['402', '402'] : [] });
    counts.commands += statuses.length;
    counts.answers += shown;
  }
  expect(guide.length).toBeGreaterThanOrEqual(13);
  expect(counts.commands).toBeGreaterThanOrEqual(85);
  expect(counts.answers).toBeGreaterThanOrEqual(6);
});

test('the examples of feed.md run in their order, and are answered as the page shows', async () => {
  granary = await startGranary('direct');
  const { key } = await newApp(granary, 'demo');
  const { statuses, shown, output } = await runPage(granary, 'feed.md', key);
  const codes = statuses.map((line) => line.slice(0, 3));
  // The state of the view is asked for until it is ready.
  expect([codes.slice(0, 4), codes.slice(-4)]).toEqual([
    ['202', '200', '200', '202'],
    ['200', '200', '200', '201'],
  ]);
  expect(shown).toBe(2);
  expect(output).toMatch(/event: ready\ndata: \{"app_id":"demo","head":1\}\n\nid: 1\.1-[0-9a-f]{8}\nevent: put/);
  expect(output).toMatch(/"as":\["all","old"\],"height":1,"place":1/);
});

test('the examples of import-export.md run in their order, and are answered as the page shows', async () => {
  granary = await startGranary('direct');
  const { key } = await newApp(granary, 'demo');
  const { statuses, output } = await runPage(granary, 'import-export.md', key);
  expect(statuses.map((line) => line.slice(0, 3))).not.toContainEqual(expect.stringMatching(/^[45]/));
  expect(output).toContain(
    '{"id":"emma","year":1815,"tags":["novel"]}\n{"id":"ulysses","year":1922,"isbn":{"de":"3518"}}\n',
  );
  expect(output).toContain(
    'id,year,isbn.de\r\nemma,1816,\r\nulysses,1922,3518\r\nid,isbn.de\r\nemma,\r\nulysses,3518\r\n',
  );
  expect(output).toMatch(/upload-offset: 26/i);
  expect(output).toContain(
    '{"id":"persuasion","title":"Persuasion","year":1817,"author":{"name":"Jane Austen"}}\n{"id":"sanditon","year":1925}\n',
  );
});

describeWith(describe, 'python')('docs/money/get-paid.md', () => {
  test('sells a page, buys it by the official client in Python, and pays out the share of the app', async () => {
    granary = await startGranary('direct', { settings: { payments: playMoney } });
    // The page makes an app, so it is given no key of one.
    const { statuses, shown, output } = await runPage(granary, 'money/get-paid.md', '', {
      python: await pythonForTests(),
    });
    expect(statuses.slice(0, 4).map((line) => line.slice(0, 3))).toEqual(['201', '201', '202', '402']);
    expect(output).toMatch(/200 \{.*Water in the evening/);
    expect(statuses).toContainEqual(expect.stringMatching(/^202 .*\/payout\/trigger/));
    expect(shown).toBe(1);
    expect(statuses.at(-1)).toMatch(/^200 .*\/wallet/);
  });
});
