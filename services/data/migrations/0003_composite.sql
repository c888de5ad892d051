-- The fields of a composite index, in order; null for an index of one field, which field_name names.
alter table document_index add column fields text[];
