-- How far a payment is, for its task: when its network had the transaction and no block yet, and when what it pays for was begun.
alter table claim
  add column sent_at timestamptz,
  add column begun_at timestamptz;
