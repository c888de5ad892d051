-- A block has the transfer of a payment: what it pays for is given from then on. It is credited once as many blocks have followed
-- as its network asks for; where it falls out of the chain before that, it is sent again.
alter table claim
  add column included_at timestamptz,
  -- Of the transaction that the block has, which need not be the one that was stored.
  add column included_hash text collate "C",
  -- The transaction was included and has moved nothing; until the payment expires somebody else may still send it.
  add column failed_at timestamptz;

-- What is given may be given before it is settled. The release before knows no such payments: it fails to settle one, and this one does it.
alter table claim
  drop constraint claim_check2,
  add constraint claim_granted check (state <> 'granted' or granted_at is not null),
  add constraint claim_settled_not_granted check (state <> 'settled' or granted_at is null);
