-- What an embeddings service makes of definitions: one vector per tenant, definition (its pin) and space. A space is
-- where vectors can be compared: a model, and how texts are made for it. Whoever has read up to a revision reads the
-- rows above it.

create table tool_embeddings (
    tenant_id  uuid not null references tenants,
    space      text not null,
    pin        text not null,
    vector     bytea not null,
    rev        bigint not null,
    created_at timestamptz not null default now(),
    primary key (tenant_id, space, pin)
);
create index tool_embeddings_rev on tool_embeddings (tenant_id, space, rev);
-- numbers without a pattern do not compress
alter table tool_embeddings alter column vector set storage external;

alter table tool_embeddings enable row level security;
alter table tool_embeddings force row level security;
create policy tenant on tool_embeddings to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on tool_embeddings to mcpproxy_system using (true);
grant select, insert on tool_embeddings to mcpproxy_app;
-- finds tenants with definitions that have none; takes away those of definitions that are no more, and a deleted tenant's
grant select (tenant_id, space, pin, created_at), delete on tool_embeddings to mcpproxy_system;
create policy system on tools to mcpproxy_system using (true);
grant select (tenant_id, server_id, pin, state, removed_at) on tools to mcpproxy_system;

-- new vectors have a revision of their own: no list changes for them. Its row is made when it is first needed.
alter table revisions drop constraint revisions_kind_check;
alter table revisions add constraint revisions_kind_check
    check (kind in ('catalogue', 'access', 'policy', 'vectors'));
grant insert on revisions to mcpproxy_app;
