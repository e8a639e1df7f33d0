-- Tenants, their keys, settings and revisions. `migrate` runs as mcpproxy_owner: it owns every table.
-- Row-level security is forced on each: mcpproxy_app sees one tenant, named in `app.tenant` for the length
-- of a transaction; mcpproxy_system is for the few cross-tenant jobs and has its own policies.

create table tenants (
    tenant_id  uuid primary key,
    name       text not null,
    created_at timestamptz not null default now(),
    deleted_at timestamptz
);
-- A deleted tenant's name may be used again; the id never is.
create unique index tenants_name on tenants (name) where deleted_at is null;

create table api_keys (
    tenant_id    uuid not null references tenants,
    key_id       uuid not null,
    role         text not null,
    name         text not null,
    owner        text not null,
    prefix       text not null,
    hash         bytea not null,
    created_at   timestamptz not null default now(),
    created_by   uuid,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    version      bigint not null default 1,
    rev          bigint not null,
    primary key (tenant_id, key_id)
);
-- The look-up of a key nobody here has seen yet.
create unique index api_keys_hash on api_keys (hash);

-- scope_id is a key's id, or the nil uuid for the tenant itself.
create table settings (
    tenant_id uuid not null references tenants,
    scope_id  uuid not null,
    value     jsonb not null,
    version   bigint not null default 1,
    rev       bigint not null,
    primary key (tenant_id, scope_id)
);

-- What a replica compares to know whether its snapshot is current.
create table revisions (
    tenant_id uuid not null references tenants,
    kind      text not null check (kind in ('catalogue', 'access', 'policy')),
    rev       bigint not null default 1,
    primary key (tenant_id, kind)
);

alter table tenants enable row level security;
alter table tenants force row level security;
create policy tenant on tenants to mcpproxy_app using (tenant_id = current_setting('app.tenant')::uuid);
create policy system on tenants to mcpproxy_system using (true) with check (true);
grant select on tenants to mcpproxy_app;
grant select, insert, update on tenants to mcpproxy_system;

alter table api_keys enable row level security;
alter table api_keys force row level security;
create policy tenant on api_keys to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on api_keys to mcpproxy_system using (true) with check (true);
grant select, insert, update on api_keys to mcpproxy_app;
grant select on api_keys to mcpproxy_system;
grant update (last_used_at) on api_keys to mcpproxy_system;

alter table settings enable row level security;
alter table settings force row level security;
create policy tenant on settings to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
grant select, insert, update on settings to mcpproxy_app;

alter table revisions enable row level security;
alter table revisions force row level security;
create policy tenant on revisions to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on revisions to mcpproxy_system using (true) with check (true);
grant select, update on revisions to mcpproxy_app;
grant select, insert, update on revisions to mcpproxy_system;

-- The reserved tenant: acts of the platform itself are recorded under it.
create policy seed on tenants to mcpproxy_owner using (true) with check (true);
insert into tenants (tenant_id, name) values ('00000000-0000-0000-0000-000000000000', 'platform');
drop policy seed on tenants;
