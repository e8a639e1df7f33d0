-- Vectors go with the rest of a deleted tenant's rows.
create policy purge on tool_embeddings to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
