/**
 * How many generated filters each suite takes: 50,000 together, and a million with TEST_LONG. Most are compared as
 * statements in Postgres; the others as requests by each entrance, which tests what is between request and statement.
 */
const isLong = process.env['TEST_LONG'] === '1';

export const caseCounts = isLong
  ? { statements: 900_000, list: 15_000, url: 15_000, predefined: 15_000, views: 15_000, joins: 40_000 }
  : { statements: 43_250, list: 1_000, url: 1_250, predefined: 1_250, views: 1_250, joins: 2_000 };

/** Generated filters of which the SQL text is searched for texts of the caller. */
export const textCounts = isLong ? { filters: 900_000, joins: 100_000 } : { filters: 45_000, joins: 5_000 };
