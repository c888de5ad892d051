import axe from 'axe-core';
import { JSDOM } from 'jsdom';
import { docsPage } from '@granary/gateway/docs/page';
import { style } from '@granary/gateway/docs/style';
import { openapiDocument } from '@granary/gateway/openapi/document';
import { routes } from '@granary/gateway/routes/table';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';

const open = (shown: typeof routes) =>
  new JSDOM(docsPage(openapiDocument(shown))('https://api.example.com').body.toString(), {
    runScripts: 'outside-only',
  }).window;
const window = open(routes);
afterAll(() => window.close());

/** The sections of all routes are made by the same code, and axe takes a fifth of a second for each. */
const audited = size({ run: 8, long: routes.length });
const interval = Math.ceil(routes.length / audited);

/** Needs a layout, which jsdom does not compute; the contrast is tested below. */
const rules = { 'color-contrast': { enabled: false } };

test(
  'axe finds no violation in the page at /docs',
  async () => {
    const page = open(routes.filter((_, place) => place % interval === 0));
    page.eval(axe.source);
    const inPage = page as unknown as { axe: typeof axe };
    const { violations, passes } = await inPage.axe.run(page.document, { rules, resultTypes: ['violations'] });
    page.close();
    expect(passes.length).toBeGreaterThan(20);
    expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
  },
  sizedLimitMs(limitMs(90_000)),
);

test('the first link of the page at /docs skips its contents, to an element that takes the focus', () => {
  const [first] = window.document.querySelectorAll('a[href], button, input, [tabindex="0"]');
  expect(first!.textContent).toMatch(/^Skip to/);
  const [target] = window.document.querySelectorAll(first!.getAttribute('href')!);
  expect([target!.localName, target!.getAttribute('tabindex')]).toEqual(['main', '-1']);
});

test('everything in the page at /docs that may scroll can be scrolled by the keyboard', () => {
  const examples = [...window.document.querySelectorAll('pre')];
  expect(examples.length).toBeGreaterThan(routes.filter((route) => route.undocumented === undefined).length);
  expect(examples.filter(({ tabIndex }) => tabIndex !== 0)).toHaveLength(0);
});

/** The colours of the page by name: of the light scheme, or of the dark one. */
function colours(block: string): Map<string, string> {
  const found = [...block.matchAll(/--(\w+): (#[0-9a-f]+);/g)].map(([, name, value]): [string, string] => [
    name!,
    value!,
  ]);
  return new Map(found);
}

/** The relative luminance of a colour (WCAG 2.2). */
function luminance(colour: string): number {
  const digits = colour.length === 4 ? colour.replace(/\w/g, '$&$&') : colour;
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(digits.slice(at, at + 2), 16) / 255;
    return part <= 0.040_45 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light! + 0.05) / (dark! + 0.05);
}

test('all text of the page at /docs has a contrast of 4.5 or more, in light and in dark', () => {
  const schemes = [...style.matchAll(/:root \{([^}]*)\}/g)].map(([, block]) => colours(block!));
  expect(schemes).toHaveLength(2);
  const used = [...style.matchAll(/[^-]color: ([^;]+);/g)].map(([, value]) => value!);
  const names = used.filter((value) => value !== 'inherit').map((value) => /^var\(--(\w+)\)$/.exec(value)?.[1]);
  expect(new Set(names)).toEqual(new Set(['text', 'quiet', 'link', 'get', 'post', 'put', 'delete']));
  const backgrounds = [...style.matchAll(/background: ([^;]+);/g)].map(([, value]) => value);
  expect(new Set(backgrounds)).toEqual(new Set(['var(--ground)', 'var(--panel)']));
  for (const scheme of schemes) {
    for (const name of names) {
      for (const ground of ['ground', 'panel']) {
        const found = contrast(scheme.get(name!)!, scheme.get(ground)!);
        expect([name, ground, found >= 4.5 || found]).toEqual([name, ground, true]);
      }
    }
  }
});
