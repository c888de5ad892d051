import { join } from 'node:path';
import { lintFromString, loadConfig } from '@redocly/openapi-core';
import { openapiDocument } from '@granary/gateway/openapi/document';
import { routes } from '@granary/gateway/routes/table';
import { repository } from './generated';

test('the linter finds nothing in the OpenAPI document', async () => {
  const config = await loadConfig({ configPath: join(repository, 'redocly.yaml') });
  const problems = await lintFromString({ source: JSON.stringify(openapiDocument(routes)), config });
  expect(problems.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer])).toEqual([]);
});
