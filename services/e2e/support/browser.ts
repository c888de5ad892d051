import { createHash, X509Certificate } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { chromium, type Browser, type Page } from 'playwright-core';
import { limitMs } from '@granary/testing/speed';
import { chromiumForTests } from '@granary/testing/stack';

export interface BrowserOptions {
  /** Addresses on this machine (`127.0.0.1:8443`) by the hosts that pages name (`api.example.com:443`). */
  hosts?: Readonly<Record<string, string>>;
  /** Certificates of servers that it trusts, in PEM. */
  certificates?: readonly string[];
}

/**
 * Starts Chromium without a window, and without its sandbox, which root and many containers cannot have. It reaches
 * `hosts` and this machine only, so that a page that loads something from elsewhere does without it. A suite closes it
 * in `afterAll`.
 */
export async function startBrowser({ hosts = {}, certificates = [] }: BrowserOptions = {}): Promise<Browser> {
  const executablePath = await chromiumForTests();
  const mapped = Object.entries(hosts).map(([host, address]) => `MAP ${host} ${address}`);
  const rules = [...mapped, 'MAP * ~NOTFOUND', 'EXCLUDE localhost', 'EXCLUDE 127.0.0.1'];
  const args = [
    `--host-resolver-rules=${rules.join(',')}`,
    `--ignore-certificate-errors-spki-list=${certificates.map(hashOfKey).join(',')}`,
  ];
  // Chromium keeps settings and caches there beside those of its profile.
  const home = await mkdtemp(path.join(os.tmpdir(), 'granary-browser-'));
  const removeHome = () => rmSync(home, { recursive: true, force: true });
  const env = { ...process.env, HOME: home, XDG_CONFIG_HOME: home, XDG_CACHE_HOME: home };
  const browser = await chromium
    .launch({ executablePath, chromiumSandbox: false, args, env, timeout: limitMs(60_000) })
    .catch((error: unknown) => {
      removeHome();
      throw error;
    });
  browser.once('disconnected', removeHome);
  return browser;
}

/** Opens a page in a context of its own. */
export async function openPage(browser: Browser, url: string): Promise<Page> {
  const page = await browser.newPage();
  page.setDefaultTimeout(limitMs(30_000));
  await page.goto(url);
  return page;
}

/** Chromium names the keys of certificates by it. */
function hashOfKey(certificate: string): string {
  const key = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(key).digest('base64');
}
