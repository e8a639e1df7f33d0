-- What was cut off results that are too long: sealed, for a while, and for the key that made the call. The key that is
-- read with is not here, only its hash, and without it nothing opens.

create table response_cache (
    tenant_id    uuid not null references tenants,
    key_hash     bytea not null,
    -- the API key whose call it was; nil for the bootstrap key
    principal_id uuid not null,
    data_key_id  uuid not null,
    sealed       bytea not null,
    bytes        bigint not null,
    -- the call's record, and what it called
    call_id      uuid not null,
    server       text,
    tool         text,
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    primary key (tenant_id, key_hash)
);
create index response_cache_expires_at on response_cache (expires_at);
-- sealed bytes do not compress
alter table response_cache alter column sealed set storage external;

alter table response_cache enable row level security;
alter table response_cache force row level security;
create policy tenant on response_cache to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on response_cache to mcpproxy_system using (true);
grant select, insert, delete on response_cache to mcpproxy_app;
-- takes away what has expired, and what a deleted tenant had
grant select (tenant_id, key_hash, expires_at), delete on response_cache to mcpproxy_system;
