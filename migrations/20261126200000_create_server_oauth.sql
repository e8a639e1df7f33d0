-- Logins of the gateway at servers: how it logs in (server_oauth), and the tokens that it got (connections). Both are bound to the place
-- that the server had when the login was configured: at another place there is no login.

create table server_oauth (
    tenant_id         uuid not null references tenants,
    server_id         uuid not null,
    -- URL of the server without its query
    place             text not null,
    kind              text not null,
    -- issuer that the token endpoint belongs to; null if only the endpoint is known
    issuer            text,
    token_endpoint    text not null,
    -- value of `resource` in token requests (RFC 8707); null: none is sent
    resource          text,
    scopes            text[] not null default '{}',
    client_id         text not null,
    client_auth       text not null,
    -- another one after each change: no token of another generation is used
    client_generation uuid not null,
    data_key_id       uuid not null,
    client_sealed     bytea not null check (length(client_sealed) <= 20000),
    primary key (tenant_id, server_id)
);

create table connections (
    tenant_id         uuid not null references tenants,
    connection_id     uuid not null,
    server_id         uuid not null,
    -- whose login it is; null for the tenant's
    principal_id      uuid,
    client_generation uuid not null,
    -- one more with each token
    generation        bigint not null default 0,
    state             text not null default 'none',
    data_key_id       uuid,
    sealed            bytea check (length(sealed) <= 70000),
    -- end of the token, and the time from which the next one is asked for; null if the provider does not say
    expires_at        timestamptz,
    renew_at          timestamptz,
    -- request to the token endpoint that is under way
    lease_by          uuid,
    lease_until       timestamptz,
    -- no request before
    retry_at          timestamptz,
    failures          int not null default 0,
    failed_at         timestamptz,
    last_error        text,
    primary key (tenant_id, connection_id)
);
create unique index connections_server on connections
    (tenant_id, server_id, coalesce(principal_id, '00000000-0000-0000-0000-000000000000'));
-- sealed bytes do not compress
alter table connections alter column sealed set storage external;

alter table server_oauth enable row level security;
alter table server_oauth force row level security;
alter table connections enable row level security;
alter table connections force row level security;
create policy tenant on server_oauth to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy tenant on connections to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
-- the deletion of a tenant takes them away at once, as all that is sealed
create policy gone on server_oauth to mcpproxy_system using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy gone on connections to mcpproxy_system using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy purge on server_oauth to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy purge on connections to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy removed on server_oauth to mcpproxy_owner using (
    exists (select from servers s where s.tenant_id = server_oauth.tenant_id and s.server_id = server_oauth.server_id
        and s.removed_at is not null)) with check (false);
create policy removed on connections to mcpproxy_owner using (
    exists (select from servers s where s.tenant_id = connections.tenant_id and s.server_id = connections.server_id
        and s.removed_at is not null)) with check (false);
grant select, insert, update, delete on server_oauth, connections to mcpproxy_app;
grant select (tenant_id), delete on server_oauth, connections to mcpproxy_system;
