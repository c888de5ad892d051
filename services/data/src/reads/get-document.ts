import { notFound } from '@granary/shared/errors';
import type { GetDocumentRequest } from '@granary/shared/gen/granary/data/v1/GetDocumentRequest';
import type { GetDocumentResponse } from '@granary/shared/gen/granary/data/v1/GetDocumentResponse';
import { sql, trusted } from '@granary/shared/postgres/sql';
import type { Row, RowReader } from '../postgres/rows';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { documentsTable } from '../catalog/table-names';
import { cipherOf } from '../encryption/document-cipher';
import { noSuchDocument } from '../documents/document-error';
import { withFreshSource } from '../query/execute/read-page';
import { AppDatabases } from '../query/execute/read-scheduler';
import type { Call } from '@granary/shared/rpc/types';
import { lookUpCollection, type ReadContext } from './read-context';

/**
 * The latest version of a document that is not deleted; without its text where the caller has that version already.
 * Throws COLLECTION_NOT_FOUND, DOCUMENT_NOT_FOUND.
 */
export function getDocument(
  db: ReadContext,
  request: GetDocumentRequest,
  call: Pick<Call, 'signal'>,
): Promise<GetDocumentResponse> {
  const { appId, collection: name, id, ifNoneMatch } = request;
  return withFreshSource(async (isRepeated) => {
    const collection = await lookUpCollection(db, appId, name, isRepeated);
    if (!collection) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
    const { shortPages } = new AppDatabases(db, { appId, mayReadPrivate: true }, call.signal);
    const { unconditional, conditional } = statementsOf(collection);
    const document = ifNoneMatch
      ? await shortPages.read(
          conditional,
          [id, String(ifNoneMatch.any), `{${ifNoneMatch.numbers.join(',')}}`],
          new DocumentReader(),
        )
      : await shortPages.read(unconditional, [id], new DocumentReader());
    if (!document) throw noSuchDocument(id);
    const cipher = cipherOf(collection);
    return cipher && document.json.length > 0 ? { ...document, json: cipher.decrypt(document.json) } : document;
  });
}

/** Reads `version, body`; a body that is null is left out. */
class DocumentReader implements RowReader<GetDocumentResponse | undefined> {
  private found: GetDocumentResponse | undefined;

  row(row: Row): void {
    const json = row.isNull(1) ? Buffer.alloc(0) : Buffer.from(row.bytes(1));
    this.found = { version: row.text(0), json };
  }

  end(): GetDocumentResponse | undefined {
    return this.found;
  }
}

interface Statements {
  unconditional: string;
  /** Its second and third values: whether any version will do, and the versions. */
  conditional: string;
}

const statements = new WeakMap<CollectionRef, Statements>();

function statementsOf(collection: CollectionRef): Statements {
  let collectionStatements = statements.get(collection);
  if (!collectionStatements) {
    const present = sql`from ${documentsTable(collection)} where id = ${trusted('$1')} and not deleted`;
    const isKnown = trusted('$2::bool or version = any($3::int8[])');
    const unconditional = sql`select version, body ${present}`;
    const conditional = sql`select version, case when ${isKnown} then null else body end ${present}`;
    collectionStatements = { unconditional: unconditional.compile().text, conditional: conditional.compile().text };
    statements.set(collection, collectionStatements);
  }
  return collectionStatements;
}
