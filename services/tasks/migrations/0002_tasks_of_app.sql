-- By which the tasks of an application are listed, the newest first, all of them or those in one state.
create index task_of_app on task (app_id, created_at desc, ticket_id desc);
create index task_of_app_in_state on task (app_id, status, created_at desc, ticket_id desc);
