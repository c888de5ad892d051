-- What agent keys pay for requests with an Idempotency-Key, kept for a day: one row for each, by a hash of who sends which key.
create table repeated_spend (
  identifier bytea primary key,
  request_hash bytea not null,
  payer_app_id text collate "C" not null,
  payment_id text collate "C" not null,
  -- Until when the request may be under way.
  expires_at timestamptz not null,
  -- What completes the payment, stored with the answer of a read before money moves: JSON of CompleteSpendRequest.
  completion text,
  answer bytea,
  answer_bytes integer not null default 0,
  paid_at timestamptz,
  created_at timestamptz not null default clock_timestamp()
);
create index repeated_spend_of_payer on repeated_spend (payer_app_id) include (answer_bytes);
create index repeated_spend_to_forget on repeated_spend (created_at);
