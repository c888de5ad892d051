-- By which the wallets are found whose deductions the chain refused lately: each further attempt would cost the broker a fee.
create index grant_deduction_refused on grant_deduction (address, updated_at)
  where state = 'failed' and transaction_number is not null;
