import { ServiceError, withFirstDetail, type FieldMessages } from '@granary/shared/errors';
import { SCHEMA_VIOLATION } from '../catalog/schema';

/** Messages about documents that are sent back, at most. */
const messagesMax = 100;

/** A path in a request, of which either part may be empty. */
export const joinPath = (base: string, path: string): string =>
  base === '' || path === '' ? base + path : `${base}.${path}`;

/** The position of a document: an index of data, or a path. */
export type Place = number | string;

/** Messages about what is wrong with the documents of a request. */
export class Violations {
  private readonly messages: FieldMessages = {};
  private count = 0;

  add(place: Place, fieldName: string, message: string): void {
    this.count += 1;
    if (this.count > messagesMax) return;
    const path = joinPath(typeof place === 'number' ? `data[${place}]` : place, fieldName);
    (this.messages[path] ??= []).push(message);
  }

  /** Throws SCHEMA_VIOLATION where there is any. */
  throwAny(): void {
    if (this.count === 0) return;
    throw new ServiceError(
      'INVALID_ARGUMENT',
      SCHEMA_VIOLATION,
      withFirstDetail('A document does not fit the schema of its collection', this.messages),
      { details: this.messages },
    );
  }
}
