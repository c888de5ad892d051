import type { OpenapiRequest } from '@granary/shared/gen/granary/data/v1/OpenapiRequest';
import { transaction } from '@granary/shared/postgres/transaction';
import { runSliced } from '@granary/shared/concurrency/time-slicing';
import { findApp } from '../catalog/app';
import { readDocument, type CatalogDocument, type DocumentsContext } from '../skills/kept-document';
import { readContent } from './content';
import { headOf, openapiText } from './document';

/**
 * The OpenAPI document of what an app offers to readers: without `mayReadPrivate` of what is public. Throws
 * APP_NOT_FOUND.
 */
export async function getOpenapi(context: DocumentsContext, request: OpenapiRequest): Promise<Buffer> {
  const { appId, mayReadPrivate } = request;
  const app = await findApp(context.pool, appId);
  const document: CatalogDocument = {
    fileName: `${app.number}.${mayReadPrivate ? 'all' : 'public'}.openapi.json`,
    headOf,
    generate: async () => {
      const content = await transaction(context.pool, (tx) => readContent(tx, app, mayReadPrivate), {
        isolation: 'repeatable read',
        readOnly: true,
      });
      return { text: await runSliced(openapiText(content)), revision: content.revision };
    },
  };
  return Buffer.from((await readDocument(context, app, document)).text);
}
