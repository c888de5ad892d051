import { notFound, ServiceError, type ErrorDetails } from '@granary/shared/errors';

export const DOCUMENT_NOT_FOUND = 'DOCUMENT_NOT_FOUND';
export const PRECONDITION_FAILED = 'PRECONDITION_FAILED';

export const noSuchDocument = (id: string): ServiceError => notFound(DOCUMENT_NOT_FOUND, `There is no document ${id}`);

export const preconditionFailed = (message: string, details: ErrorDetails = {}): ServiceError =>
  new ServiceError('FAILED_PRECONDITION', PRECONDITION_FAILED, message, { details });
