-- What is to be known of servers: what their programs write to standard error, and what became of them. Bounded
-- per server by whoever writes; log_id grows in the order of commits, since writers take turns.

create table server_logs (
    tenant_id uuid not null,
    server_id uuid not null,
    log_id    bigint generated always as identity,
    at        timestamptz not null,
    source    text not null check (source in ('stderr', 'gateway')),
    line      text not null,
    primary key (tenant_id, server_id, log_id),
    foreign key (tenant_id, server_id) references servers
);

alter table server_logs enable row level security;
alter table server_logs force row level security;
create policy tenant on server_logs to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on server_logs to mcpproxy_system using (true) with check (true);
grant select, delete on server_logs to mcpproxy_app;
grant select, insert, delete on server_logs to mcpproxy_system;
