-- Rules of a tenant that map claims to a role, as one document with versions, and the people that they let in. A person's id is
-- derived from tenant, issuer and subject: the row follows the first call, which needs none.

create table identity_rules (
    tenant_id  uuid primary key references tenants,
    version    bigint not null check (version > 0),
    -- a JSON array; rules name their issuer by its id
    rules      text not null,
    rev        bigint not null
);

create table identities (
    tenant_id    uuid not null references tenants,
    identity_id  uuid not null,
    issuer_id    uuid not null,
    subject      text not null,
    owner        text not null,
    email        text,
    role         text not null,
    created_at   timestamptz not null default now(),
    last_seen_at timestamptz not null,
    blocked_at   timestamptz,
    -- tokens that were issued earlier are refused
    not_before   timestamptz,
    rev          bigint not null default 0,
    primary key (tenant_id, identity_id)
);
create index identities_barred on identities (tenant_id) where blocked_at is not null or not_before is not null;

do $$
declare
    the_table text;
begin
    foreach the_table in array array['identity_rules', 'identities']
    loop
        execute pg_catalog.format('alter table %I enable row level security', the_table);
        execute pg_catalog.format('alter table %I force row level security', the_table);
        execute pg_catalog.format(
            'create policy tenant on %I to mcpproxy_app using (tenant_id = current_setting(''app.tenant'')::uuid)
                 with check (tenant_id = current_setting(''app.tenant'')::uuid)',
            the_table);
        execute pg_catalog.format(
            'create policy purge on %I to mcpproxy_owner using (
                 tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false)',
            the_table);
    end loop;
end
$$;
grant select, insert, update on identity_rules to mcpproxy_app;
grant select, insert on identities to mcpproxy_app;
grant update (owner, email, role, last_seen_at, blocked_at, not_before, rev) on identities to mcpproxy_app;
