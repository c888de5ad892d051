-- Prices of reading (docs/prices.md): JSON as of indexes, null where there is none.
alter table collection add column read_price_config_text text;
alter table view add column read_price_config_text text;
alter table query add column read_price_config_text text;

-- Whether an application has prices at all is part of each look-up of a view.
create index collection_priced on collection (app_number) where read_price_config_text is not null;
create index document_index_priced on document_index (app_number) where read_price_config_text is not null;
