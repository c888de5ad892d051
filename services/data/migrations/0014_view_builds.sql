-- The table that a refresh is filling: while it is named here it is in use, and the last refresh that named one may swap.
alter table view add column building_table_number bigint;

-- What is known of the rows of a view, as JSON: types and key columns of their fields, and joins without an index.
alter table view add column layout_text text;
