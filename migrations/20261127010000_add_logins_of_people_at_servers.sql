-- Logins of people at servers (authorization code with PKCE): one connection per principal and server, and the logins that were begun.

alter table server_oauth
    -- URL that browsers are sent to; null for the gateway's own login
    add column authorization_endpoint text,
    -- URL where tokens are revoked (RFC 7009); null if there is none
    add column revocation_endpoint text,
    -- true if the authorization server names itself in its answers (RFC 9207)
    add column require_iss boolean not null default false,
    -- true if the server named the issuer when the login was configured: it must go on doing so
    add column is_named boolean not null default false,
    -- how the gateway got its client id
    add column registration text not null default 'given',
    -- one more with each connection that is made or removed: replicas look tokens up anew
    add column epoch bigint not null default 0,
    -- principal with whose login the server is listed; null for nobody's
    add column listing_principal uuid,
    -- a public client has no secret
    alter column data_key_id drop not null,
    alter column client_sealed drop not null;

alter table connections
    add column refresh_key_id uuid,
    add column refresh_sealed bytea check (length(refresh_sealed) <= 70000),
    -- tokens that were asked for in the place of those that the server refused, in the minute since this time
    add column refused_since timestamptz,
    add column refused_count int not null default 0,
    -- scopes that the server asked for besides those of the configuration
    add column wanted_scopes text[] not null default '{}';
alter table connections alter column refresh_sealed set storage external;

create table connect_flows (
    tenant_id         uuid not null references tenants,
    flow_id           uuid not null,
    server_id         uuid not null,
    -- whose login it is
    principal_id      uuid not null,
    client_generation uuid not null,
    -- true if the server is to be listed with this login
    for_listing       boolean not null default false,
    -- SHA-256 of `state`; null before the browser is sent to the authorization server, and after it came back
    state_hash        bytea check (octet_length(state_hash) = 32),
    -- SHA-256 of the browser's cookie; null for a login that a program began
    browser_hash      bytea check (octet_length(browser_hash) = 32),
    -- where the browser is sent with the code that the program claims the tokens with; null for a login on a page
    loopback          text,
    -- SHA-256 of that code; null before the browser came back
    claim_hash        bytea check (octet_length(claim_hash) = 32),
    -- PKCE verifier, then the tokens until they are claimed
    data_key_id       uuid,
    sealed            bytea check (length(sealed) <= 140000),
    created_at        timestamptz not null default now(),
    expires_at        timestamptz not null,
    primary key (tenant_id, flow_id)
);
-- one login of a principal at a server at a time
create unique index connect_flows_principal on connect_flows (tenant_id, server_id, principal_id);
create index connect_flows_expires on connect_flows (expires_at);

alter table connect_flows enable row level security;
alter table connect_flows force row level security;
create policy tenant on connect_flows to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy expired on connect_flows to mcpproxy_system using (
    expires_at < now() or tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy purge on connect_flows to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy removed on connect_flows to mcpproxy_owner using (
    exists (select from servers s where s.tenant_id = connect_flows.tenant_id and s.server_id = connect_flows.server_id
        and s.removed_at is not null)) with check (false);
grant select, insert, update, delete on connect_flows to mcpproxy_app;
grant select (tenant_id, flow_id, expires_at), delete on connect_flows to mcpproxy_system;
