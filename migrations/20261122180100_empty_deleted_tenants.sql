-- The rows of a deleted tenant go, all but the one in tenants: as the owner, who may delete what is a deleted tenant's
-- and nothing else. The roles that serve requests still cannot delete servers, tools or keys.
do $$
declare
    the_table text;
begin
    foreach the_table in array array[
        'api_keys', 'settings', 'servers', 'tools', 'tool_names', 'server_logs', 'server_secrets', 'data_keys',
        'response_cache', 'revisions']
    loop
        execute pg_catalog.format(
            'create policy purge on %I to mcpproxy_owner using (
                 tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false)',
            the_table);
    end loop;
end
$$;
