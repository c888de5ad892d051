import { detailText, ServiceError, type FieldMessages } from '@granary/shared/errors';
import type { ValidateDocumentsRequest } from '@granary/shared/gen/granary/data/v1/ValidateDocumentsRequest';
import { requireCollection } from '../catalog/collection';
import { prepareBody } from '../documents/parser';
import { rulesOf } from '../documents/rules';
import type { PoolContext } from '../postgres/databases';

/**
 * Says whether documents would be stored, without storing them, as JSON: `valid`, `errors`, a list of sentences, which
 * the published client shows, and `details`, the messages of each path.
 */
export async function validateDocuments({ pool }: PoolContext, request: ValidateDocumentsRequest): Promise<Buffer> {
  const collection = await requireCollection(pool, request.appId, request.collection);
  try {
    const documents = prepareBody(request.body, rulesOf(collection), { single: true });
    return Buffer.from(JSON.stringify({ valid: true, document_count: documents.length, errors: [], details: {} }));
  } catch (error) {
    // The problems of a document are the answer. A problem of the request is an error, as everywhere.
    if (!(error instanceof ServiceError) || !isAboutDocuments(error)) throw error;
    const details = error.details as FieldMessages;
    const errors = Object.entries(details).flatMap(([path, messages]) =>
      messages.map((message) => detailText(path, message)),
    );
    return Buffer.from(JSON.stringify({ valid: false, errors, details }));
  }
}

function isAboutDocuments(error: ServiceError): boolean {
  const paths = Object.keys(error.details);
  return paths.length > 0 && paths.every((path) => /^data[[.]/.test(path));
}
