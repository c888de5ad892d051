-- Refused payments are kept for an hour only: anybody can present any number of them.
create index claim_refused on claim (updated_at) where state = 'refused';
