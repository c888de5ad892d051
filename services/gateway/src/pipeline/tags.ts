/** The groups of operations, in the order in which they are presented: what deletes an application comes last. */
export const tags = {
  Documents: 'Store JSON documents and query them. A collection is created by the first write to it.',
  Indexes: 'Indexes serve filters and orders, make values unique, and decide what public reads may filter by.',
  Views: 'Materialized views keep the result of a query over a collection, refreshed by a task.',
  'Predefined queries': 'Queries that the owner of an application defines and anybody runs, with parameters.',
  'Data sets': 'Sets of values that filters compare with, by the operator `inDataset`.',
  Blobs: 'Files, each with a metadata document in the same collection.',
  Collections: 'Schemas, access policies and retention of collections.',
  Commits: 'The links of the hash chain of an application, and proofs of what they stored.',
  Tasks: 'The progress of what takes longer than a request, by its ticket.',
  Keys: 'The keys of an application and their permissions.',
  Wallet: 'Balances, payout settings and what keeping data costs. Amounts are integers in utia.',
  Authz: 'What was deducted under the grants of users.',
  Skills: 'A description of an application for agents, in Markdown.',
  x402: 'Payments by the x402 protocol.',
  Service: 'Health, readiness and this documentation.',
  Applications: 'Applications are tenants; the operator of the service makes and deletes them.',
} as const;

export type Tag = keyof typeof tags;
