import { notFound, type ServiceError } from '@granary/shared/errors';

export const DATASET_NOT_FOUND = 'DATASET_NOT_FOUND';

/** The table with the values of a data set. It never changes: a data set that is replaced gets another one. */
export interface DatasetTable {
  appNumber: bigint;
  tableNumber: bigint;
}

export const datasetNotFound = (name: string): ServiceError =>
  notFound(DATASET_NOT_FOUND, `There is no data set ${name}`);
