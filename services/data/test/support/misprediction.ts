import { NewDocuments } from '../../src/commit/new-documents';

/**
 * Expects new documents in about half of the writes, right or wrong, so that both ways to insert follow each other.
 * Returns the spy that is called for each insertion that failed. `jest.restoreAllMocks` ends it.
 */
export function mispredictNewDocuments(): jest.SpyInstance {
  const predict: NewDocuments['isExpected'] = Reflect.get(NewDocuments.prototype, 'isExpected');
  jest.spyOn(NewDocuments.prototype, 'isExpected').mockImplementation(function (this: NewDocuments, ...query) {
    const [, rows] = query;
    return rows[0]!.ordinal % 2 === 0 || predict.apply(this, query);
  });
  return jest.spyOn(NewDocuments.prototype, 'existed');
}
