-- Replies of handshake clients on their way to the replica that waits for them: a client posts its reply to any replica.
-- They are sealed, taken once, and expire soon.

create table client_replies (
    tenant_id  uuid not null references tenants on delete cascade,
    -- whoever waits for the reply
    id         uuid not null,
    -- the replica on which it waits
    replica_id uuid not null,
    sealed     bytea not null check (length(sealed) <= 1100000),
    expires_at timestamptz not null,
    primary key (tenant_id, id)
);
create index client_replies_replica on client_replies (replica_id);
create index client_replies_expires_at on client_replies (expires_at);
-- sealed bytes do not compress
alter table client_replies alter column sealed set storage external;

alter table client_replies enable row level security;
alter table client_replies force row level security;
create policy tenant on client_replies to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on client_replies for select to mcpproxy_system using (true);
create policy purge on client_replies to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy old on client_replies to mcpproxy_owner using (expires_at < now()) with check (false);
grant select, insert, delete on client_replies to mcpproxy_app;
-- a replica looks for what it missed the notice of
grant select (tenant_id, id, replica_id, expires_at) on client_replies to mcpproxy_system;
