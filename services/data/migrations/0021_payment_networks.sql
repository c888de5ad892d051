-- On which networks an application takes x402 payments (docs/prices.md); null: on all that the operator offers.
alter table application add column payment_networks text[] check (cardinality(payment_networks) > 0);
