-- What decides access to a tenant is read as often as it changes: only what is live may cost anything. Revoked keys stay
-- to be looked at, the newest for a while (store/removed); what they said goes with them.
create index api_keys_live on api_keys (tenant_id) where revoked_at is null;
create index api_keys_revoked on api_keys (tenant_id, revoked_at, key_id) where revoked_at is not null;

grant delete on settings to mcpproxy_app;

create policy revoked on api_keys to mcpproxy_owner using (revoked_at is not null) with check (false);
create policy revoked on settings to mcpproxy_owner using (
    exists (select from api_keys k
        where k.tenant_id = settings.tenant_id and k.key_id = settings.scope_id and k.revoked_at is not null))
    with check (false);
