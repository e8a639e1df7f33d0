-- Credentials of upstream servers, sealed. A data key of the tenant seals them, a master key of the deployment
-- wraps the data key; nothing here opens without the master key, and no row opens in another row's place.

-- A canary for each master key that is in use: whoever starts with keys that open none of them has the wrong ones.
create table secret_canary (
    master_id  text primary key,
    sealed     bytea not null,
    created_at timestamptz not null default now()
);

-- One data key may be wrapped by several master keys while they are rotated.
create table data_keys (
    tenant_id  uuid not null references tenants,
    key_id     uuid not null,
    master_id  text not null,
    wrapped    bytea not null,
    created_at timestamptz not null default now(),
    primary key (tenant_id, key_id, master_id)
);

-- The headers a server is called with. principal_id: whose they are; null for everybody's.
create table server_secrets (
    tenant_id    uuid not null,
    secret_id    uuid not null,
    server_id    uuid not null,
    principal_id uuid,
    key_id       uuid not null,
    sealed       bytea not null,
    created_at   timestamptz not null default now(),
    primary key (tenant_id, secret_id),
    foreign key (tenant_id, server_id) references servers
);
create unique index server_secrets_server on server_secrets
    (tenant_id, server_id, coalesce(principal_id, '00000000-0000-0000-0000-000000000000'));

-- Names only: what may be shown.
alter table servers add column header_names text[] not null default '{}';

alter table secret_canary enable row level security;
alter table secret_canary force row level security;
create policy system on secret_canary to mcpproxy_system using (true) with check (true);
grant select, insert, delete on secret_canary to mcpproxy_system;

alter table data_keys enable row level security;
alter table data_keys force row level security;
create policy tenant on data_keys to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on data_keys to mcpproxy_system using (true) with check (true);
grant select, insert on data_keys to mcpproxy_app;
grant select, insert, delete on data_keys to mcpproxy_system;

alter table server_secrets enable row level security;
alter table server_secrets force row level security;
create policy tenant on server_secrets to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on server_secrets to mcpproxy_system using (true);
grant select, insert, delete on server_secrets to mcpproxy_app;
grant select, delete on server_secrets to mcpproxy_system;
