-- Ledger of the calls that filled in forms of web pages: what was set, from what to what, where it was sent, and how it ended.
-- Values stand here only as keyed digests and as masked, cut previews. The rows of a call are a chain: each carries the keyed
-- hash of the one before. Nobody may change a row, and only the owner may delete one: as records of the activity log.

create table web_provenance (
    tenant_id       uuid not null references tenants on delete cascade,
    -- the record of the call
    request_id      uuid not null,
    -- the key that called, or the nil uuid for the bootstrap key
    principal       uuid not null,
    server_id       uuid not null,
    -- from 0 on, without gaps
    step            integer not null check (step >= 0),
    at              timestamptz not null,
    phase           text not null,
    layer           text not null,
    consent_id      uuid,
    page_url        text not null check (length(page_url) <= 4096),
    -- SHA-256 of the page as it was fetched for the call
    page_hash       bytea not null check (length(page_hash) <= 64),
    selector        text not null check (length(selector) <= 1000),
    explanation     text not null check (length(explanation) <= 1000),
    original_digest bytea check (length(original_digest) <= 64),
    new_digest      bytea check (length(new_digest) <= 64),
    new_preview     text check (length(new_preview) <= 1000),
    -- the client that called, as it names itself
    orchestrator    text check (length(orchestrator) <= 300),
    prev_hash       bytea not null check (length(prev_hash) <= 64),
    hash            bytea not null check (length(hash) <= 64),
    primary key (tenant_id, request_id, step)
);
create index web_provenance_own on web_provenance (tenant_id, principal, server_id, at);
create index web_provenance_old on web_provenance (tenant_id, at);

alter table web_provenance enable row level security;
alter table web_provenance force row level security;
create policy tenant on web_provenance to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
grant select, insert on web_provenance to mcpproxy_app;

create policy retention_reads on web_provenance for select to mcpproxy_owner using (true);
create policy retention_deletes on web_provenance for delete to mcpproxy_owner using (
    at < now() - interval '1 day'
    or tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null));
