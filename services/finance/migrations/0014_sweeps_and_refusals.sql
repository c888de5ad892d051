-- Addresses are swept in their order, a hundred each round: what has nothing left is in no index, and the amounts that are
-- too small are passed over within it.
create index unswept_in_order on unswept (address) include (amount, address_index) where amount > 0;
drop index unswept_amount;

-- What the chain refused lately, by destination: each further attempt would cost the platform a fee.
create index payout_refused on payout (app_id, destination, updated_at) where status = 'failed';
