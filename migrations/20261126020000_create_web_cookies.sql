-- Cookies of servers of web pages whose setting is `kept`: one sealed row for each key and server. They end with their key, their
-- server, its pages, and a while after the last call that changed one of them.

create table web_cookies (
    tenant_id    uuid not null references tenants,
    -- the key of the cookies; nil for the bootstrap key
    principal_id uuid not null,
    server_id    uuid not null,
    -- another one after each change
    version      uuid not null,
    data_key_id  uuid not null,
    sealed       bytea not null check (length(sealed) <= 300000),
    expires_at   timestamptz not null,
    primary key (tenant_id, principal_id, server_id)
);
create index web_cookies_server on web_cookies (tenant_id, server_id);
create index web_cookies_expires_at on web_cookies (expires_at);
-- sealed bytes do not compress
alter table web_cookies alter column sealed set storage external;

alter table web_cookies enable row level security;
alter table web_cookies force row level security;
create policy tenant on web_cookies to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy expired on web_cookies to mcpproxy_system using (expires_at < now()) with check (false);
-- the deletion of a tenant takes them away at once, as all that is sealed
create policy gone on web_cookies to mcpproxy_system using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy purge on web_cookies to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
grant select, insert, delete on web_cookies to mcpproxy_app;
grant update (version, data_key_id, sealed, expires_at) on web_cookies to mcpproxy_app;
grant select (tenant_id, principal_id, server_id, expires_at), delete on web_cookies to mcpproxy_system;
