-- What servers offer besides tools: prompts, resources and templates of resources, each definition as it was sent. Nobody
-- approves them, so what a server offers no more is gone. Whoever has offered a URI the longest owns it: first_seen_at
-- begins anew for what went and came back. The rows go with their server, also where a release that does not know of them
-- deletes it.

create table offers (
    tenant_id     uuid not null,
    server_id     uuid not null,
    kind          text not null check (kind in ('prompt', 'resource', 'template')),
    -- a prompt's name, a resource's URI, a template's text
    name          text not null,
    definition    text not null,
    -- of what it says, and of its very bytes
    pin           text not null,
    digest        text not null,
    first_seen_at timestamptz not null default clock_timestamp(),
    rev           bigint not null,
    primary key (tenant_id, server_id, kind, name),
    foreign key (tenant_id, server_id) references servers on delete cascade
);
-- who else offers the same
create index offers_name on offers (tenant_id, kind, name) where kind <> 'prompt';

-- Safe spellings of prompts, as tool_names are of tools.
create table prompt_names (
    tenant_id uuid not null,
    safe_name text not null,
    server_id uuid not null,
    prompt    text not null,
    primary key (tenant_id, safe_name),
    unique (tenant_id, server_id, prompt),
    foreign key (tenant_id, server_id) references servers on delete cascade
);

do $$
declare
    the_table text;
begin
    foreach the_table in array array['offers', 'prompt_names'] loop
        execute pg_catalog.format('alter table %I enable row level security', the_table);
        execute pg_catalog.format('alter table %I force row level security', the_table);
        execute pg_catalog.format(
            'create policy tenant on %I to mcpproxy_app
                 using (tenant_id = current_setting(''app.tenant'')::uuid)
                 with check (tenant_id = current_setting(''app.tenant'')::uuid)',
            the_table);
        execute pg_catalog.format(
            'create policy purge on %I to mcpproxy_owner using (
                 tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false)',
            the_table);
        execute pg_catalog.format(
            'create policy removed on %1$I to mcpproxy_owner using (
                 exists (select from servers s where s.tenant_id = %1$I.tenant_id
                     and s.server_id = %1$I.server_id and s.removed_at is not null)) with check (false)',
            the_table);
    end loop;
end
$$;
grant select, insert, update, delete on offers to mcpproxy_app;
grant select, insert on prompt_names to mcpproxy_app;
