-- Upstream servers and their tools. A server's id outlives nothing and is never used again: removed and
-- added again, it is a new server. Removals stay as rows (tombstones) so that a reload can fetch what
-- changed since a revision.

create table servers (
    tenant_id    uuid not null references tenants,
    server_id    uuid not null,
    name         text not null,
    kind         text not null check (kind in ('http', 'stdio')),
    url          text,
    command      text,
    enabled      boolean not null default true,
    quarantined  boolean not null default false,
    auto_approve boolean not null default false,
    -- false until the first listing after a release: that listing is the baseline of the pins
    baselined    boolean not null default false,
    limits       jsonb not null default '{}',
    era          text check (era in ('modern', 'handshake')),
    connection   text not null default 'unknown' check (connection in ('unknown', 'connected', 'disconnected')),
    last_ok_at   timestamptz,
    last_error   text,
    added_by     uuid,
    created_at   timestamptz not null default now(),
    removed_at   timestamptz,
    version      bigint not null default 1,
    rev          bigint not null,
    primary key (tenant_id, server_id)
);
create unique index servers_name on servers (tenant_id, name) where removed_at is null;

-- definition is the exact text the server sent; approved_definition what a person (or the baseline) took.
create table tools (
    tenant_id           uuid not null,
    server_id           uuid not null,
    name                text not null,
    definition          text not null,
    pin                 text not null,
    state               text not null check (state in ('approved', 'pending', 'changed', 'blocked')),
    approved_pin        text,
    approved_definition text,
    approved_by         uuid,
    first_seen_at       timestamptz not null default now(),
    changed_at          timestamptz not null default now(),
    removed_at          timestamptz,
    rev                 bigint not null,
    primary key (tenant_id, server_id, name),
    foreign key (tenant_id, server_id) references servers
);

-- Safe spellings: assigned at first sight, unique in the tenant, never re-assigned.
create table tool_names (
    tenant_id uuid not null,
    safe_name text not null,
    server_id uuid not null,
    tool      text not null,
    primary key (tenant_id, safe_name),
    unique (tenant_id, server_id, tool),
    foreign key (tenant_id, server_id) references servers
);

alter table servers enable row level security;
alter table servers force row level security;
create policy tenant on servers to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy system on servers to mcpproxy_system using (true);
grant select, insert, update on servers to mcpproxy_app;
grant select on servers to mcpproxy_system;

alter table tools enable row level security;
alter table tools force row level security;
create policy tenant on tools to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
grant select, insert, update on tools to mcpproxy_app;

alter table tool_names enable row level security;
alter table tool_names force row level security;
create policy tenant on tool_names to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
grant select, insert on tool_names to mcpproxy_app;
