-- Servers that were removed, and what they had, are deleted in batches: as the owner, who may delete what is of a server
-- that is removed and nothing else.
create index servers_removed on servers (tenant_id, server_id) where removed_at is not null;
create policy removed on servers to mcpproxy_owner using (removed_at is not null) with check (false);
do $$
declare
    the_table text;
begin
    foreach the_table in array array['tools', 'tool_names', 'server_logs', 'server_secrets'] loop
        execute pg_catalog.format(
            'create policy removed on %1$I to mcpproxy_owner using (
                 exists (select from servers s where s.tenant_id = %1$I.tenant_id
                     and s.server_id = %1$I.server_id and s.removed_at is not null)) with check (false)',
            the_table);
    end loop;
end
$$;
