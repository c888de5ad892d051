-- Null: the sequence is taken from the chain at the next signature, because a person has resumed the sender.
alter table chain_sender alter column next_sequence drop not null;

-- Up to which block reconciliation has compared the chain with deposits and with what was signed here.
alter table chain_watch add column checked_height bigint;
update chain_watch set checked_height = height;
alter table chain_watch alter column checked_height set not null;
create index outgoing_transaction_height on outgoing_transaction (height) where height is not null;
create index deposit_height on deposit (chain_id, height);

-- The height of the chain when it was signed: no earlier block includes it.
alter table outgoing_transaction add column signed_height bigint not null default 0;
alter table outgoing_transaction alter column signed_height drop default;
