-- Wishes of handshake sessions, which any replica may be told and any other must know: the log level, and the resources whose
-- updates the client wants to hear of. A session without wishes has no row. Rows go a day after the session was last seen.

create table client_sessions (
    tenant_id  uuid not null references tenants on delete cascade,
    session_id text not null check (length(session_id) <= 100),
    -- the key of the session, or the nil uuid for the bootstrap key
    principal  uuid not null,
    -- null: never set
    log_level  text check (length(log_level) <= 100),
    uris       text[] not null default '{}' check (cardinality(uris) <= 1000),
    seen_at    timestamptz not null default now(),
    primary key (tenant_id, session_id)
);
create index client_sessions_principal on client_sessions (tenant_id, principal);
create index client_sessions_seen_at on client_sessions (seen_at);

alter table client_sessions enable row level security;
alter table client_sessions force row level security;
create policy tenant on client_sessions to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy purge on client_sessions to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy old on client_sessions to mcpproxy_owner using (seen_at < now() - interval '1 day') with check (false);
grant select, insert, delete on client_sessions to mcpproxy_app;
grant update (log_level, uris, seen_at) on client_sessions to mcpproxy_app;
