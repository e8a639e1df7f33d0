-- Policies of tenants and of their keys: each version is a row whose content never changes. The one that holds is the one
-- that nothing has replaced yet.

create table policies (
    tenant_id   uuid not null references tenants,
    -- the key's id, or the nil uuid for the tenant's own
    scope_id    uuid not null,
    version     bigint not null check (version > 0),
    -- the policy_mode that the change set along with the rules; null: it left the setting alone
    mode        text,
    -- a JSON array, as it was written
    rules       text not null,
    created_by  uuid,
    created_at  timestamptz not null default now(),
    replaced_at timestamptz,
    rev         bigint not null,
    primary key (tenant_id, scope_id, version)
);
create unique index policies_in_force on policies (tenant_id, scope_id) where replaced_at is null;
create index policies_replaced on policies (tenant_id, replaced_at) where replaced_at is not null;

alter table policies enable row level security;
alter table policies force row level security;
create policy tenant on policies to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on policies for select to mcpproxy_system using (true);
create policy purge on policies to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy revoked on policies to mcpproxy_owner using (
    exists (select from api_keys k
        where k.tenant_id = policies.tenant_id and k.key_id = policies.scope_id and k.revoked_at is not null))
    with check (false);
create policy replaced on policies to mcpproxy_owner using (replaced_at < now() - interval '1 day') with check (false);
grant select, insert on policies to mcpproxy_app;
grant update (replaced_at) on policies to mcpproxy_app;
grant select (tenant_id, scope_id, version, replaced_at) on policies to mcpproxy_system;
