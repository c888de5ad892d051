import { join } from 'node:path';
import { lintFromString, loadConfig } from '@redocly/openapi-core';
import { openapiDocument } from '@granary/gateway/openapi/document';
import { routes } from '@granary/gateway/routes/table';
import { describedApp } from '../support/described-app';
import { borrowGranary, newApp, send, type Granary } from '../support/granary';
import { repository } from './generated';

async function problemsOf(source: string) {
  const config = await loadConfig({ configPath: join(repository, 'redocly.yaml') });
  const problems = await lintFromString({ source, config });
  return problems.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer]);
}

test('the linter finds nothing in the OpenAPI document', async () => {
  expect(await problemsOf(JSON.stringify(openapiDocument(routes)))).toEqual([]);
});

describe('of an app', () => {
  let granary: Granary;
  beforeAll(async () => {
    granary = await borrowGranary('direct');
  });
  afterAll(() => granary.stop());

  test('the linter finds nothing in the OpenAPI document that strangers get, nor in that of a key', async () => {
    const app = await describedApp(granary);
    const empty = await newApp(granary);
    for (const [appId, key] of [[app.appId], [app.appId, app.key], [empty.appId]] as const) {
      const { status, text } = await send(granary.url, 'GET', `/api/apps/${appId}/openapi.json`, { key });
      expect(status).toBe(200);
      expect(await problemsOf(text)).toEqual([]);
    }
  });
});
