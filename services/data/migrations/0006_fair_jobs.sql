-- Jobs are taken fairly by application: start-time fair queueing. A job's rank is one more than that of the job before it
-- of its application, and no less than the lowest rank that waits, so applications with waiting jobs alternate.
alter table job add column rank bigint not null default 0;
-- What the job is about, where one waiting job for it is enough.
alter table job add column subject text collate "C";
-- A job that failed and will be tried again is not taken before this.
alter table job add column not_before timestamptz;

drop index job_open;
create index job_open on job (rank, created_at) where status in ('Pending', 'StoringData');
create index job_of_app on job (app_number, rank) where status in ('Pending', 'StoringData');
create index job_running on job (app_number) where status = 'StoringData' and leased_until is not null;
create unique index job_subject on job (app_number, kind, subject) where status = 'Pending' and subject is not null;
