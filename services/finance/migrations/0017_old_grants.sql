-- By which deductions and grants that are over are found, to be removed.
create index grant_deduction_ended on grant_deduction (updated_at) where state <> 'pending';
create index grant_deduction_grant on grant_deduction (grant_id);
create index user_grant_over on user_grant (least(revoked_at, expires_at));
