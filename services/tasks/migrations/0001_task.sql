-- The states of a task in their order. What has ended, ended.
create function task_stage(status text) returns int language sql immutable strict
  return array_position(
    array['Pending', 'PaymentBroadcast', 'PaymentConfirming', 'PaymentConfirmed', 'StoringData', 'Completed', 'Failed'],
    status);

create table task (
  ticket_id text collate "C" primary key,
  app_id text collate "C" not null,
  operation_type text not null,
  status text not null check (task_stage(status) is not null),
  -- Why, exactly when it failed.
  error text check ((error is not null) = (status = 'Failed')),
  progress double precision not null default 0 check (progress between 0 and 1),
  progress_log text[] not null default '{}',
  -- JSON.
  result_text text,
  created_at timestamptz not null,
  updated_at timestamptz not null
);

create function refuse_task_step_back() returns trigger language plpgsql as $$
begin
  if old.status in ('Completed', 'Failed') or task_stage(new.status) < task_stage(old.status) then
    raise exception 'task % cannot go from % to %', old.ticket_id, old.status, new.status;
  end if;
  return new;
end
$$;

create trigger task_forward before update on task for each row execute function refuse_task_step_back();
