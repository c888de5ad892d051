-- Signatures of wallets that have changed something: each does so once. They are kept for longer than a signature is valid.
create table used_signature (
  signature bytea primary key,
  -- The request that has used it.
  use_id uuid not null,
  forget_at timestamptz not null
);
create index used_signature_forget_at on used_signature (forget_at);
