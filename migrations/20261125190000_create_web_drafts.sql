-- Drafts of forms of web pages: what the single steps of an agent have set, before anything is sent. Sealed, for a quarter of an
-- hour after the last change, and for the key that made them. A draft goes in the transaction that commits the ledger of its call.

create table web_drafts (
    tenant_id    uuid not null references tenants,
    -- the key of the draft; nil for the bootstrap key
    principal_id uuid not null,
    server_id    uuid not null,
    -- SHA-256 of page and selector
    form         bytea not null check (length(form) = 32),
    -- another one after each change
    version      uuid not null,
    data_key_id  uuid not null,
    sealed       bytea not null check (length(sealed) <= 300000),
    expires_at   timestamptz not null,
    primary key (tenant_id, principal_id, server_id, form)
);
create index web_drafts_expires_at on web_drafts (expires_at);
-- sealed bytes do not compress
alter table web_drafts alter column sealed set storage external;

alter table web_drafts enable row level security;
alter table web_drafts force row level security;
create policy tenant on web_drafts to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy expired on web_drafts to mcpproxy_system using (expires_at < now()) with check (false);
create policy purge on web_drafts to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
grant select, insert, delete on web_drafts to mcpproxy_app;
grant update (version, data_key_id, sealed, expires_at) on web_drafts to mcpproxy_app;
grant select (tenant_id, principal_id, server_id, form, expires_at), delete on web_drafts to mcpproxy_system;
