-- Retention. Whole days are dropped with their partition. A tenant that keeps less, or that was deleted, loses rows:
-- as the owner, the only one who may delete them, and only what is a day old or a deleted tenant's. The roles that
-- serve requests still cannot.

alter table tenants add column purged_at timestamptz;
comment on column tenants.purged_at is 'when the last record of a deleted tenant was gone';
create index tenants_to_purge on tenants (tenant_id) where deleted_at is not null and purged_at is null;

create policy retention on tenants for select to mcpproxy_owner using (deleted_at is not null);
create policy retention_reads on activity for select to mcpproxy_owner using (true);
create policy retention_deletes on activity for delete to mcpproxy_owner using (
    started_at < now() - interval '1 day'
    or tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null));

-- what each tenant says itself; its keys' settings are not looked at
create policy system on settings for select to mcpproxy_system
    using (scope_id = '00000000-0000-0000-0000-000000000000');
grant select on settings to mcpproxy_system;
