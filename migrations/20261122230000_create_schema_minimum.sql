-- The oldest program that may work on this schema; no row: any. A migration that an older program cannot live with puts
-- its release here: `insert into schema_minimum (release) values ('1.2.0')`. The highest one counts.
create table schema_minimum (
    release text primary key check (release ~ '^[0-9]+\.[0-9]+\.[0-9]+$')
);
alter table schema_minimum enable row level security;
alter table schema_minimum force row level security;
create policy owner on schema_minimum to mcpproxy_owner using (true) with check (true);
