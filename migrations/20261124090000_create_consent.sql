-- Permission requests, one row each; grants, which are decisions that were remembered; and fences of cancelled turns.
-- Arguments stand here only as a keyed digest and as a masked, cut preview.

create table consent_requests (
    tenant_id       uuid not null references tenants on delete cascade,
    -- ordered by time (UUID version 7)
    id              uuid not null,
    -- the key that calls, or the nil uuid for the bootstrap key
    principal       uuid not null,
    owner           text not null check (length(owner) <= 1000),
    -- the owner for separation of duties; null: nobody named one
    person          text check (length(person) <= 1000),
    creator         uuid,
    -- the session of the call; null without one
    session_id      text check (length(session_id) <= 200),
    server_id       uuid not null,
    server          text not null check (length(server) <= 100),
    tool            text not null check (length(tool) <= 1000),
    operation_type  text not null,
    -- the definition that was asked about
    pin             text not null check (length(pin) <= 200),
    digest          bytea not null check (length(digest) <= 64),
    endpoint        text not null,
    risk            text not null,
    signals         text[] not null,
    -- the action as a key with values, worded for each reader
    action          text not null,
    action_values   text[] not null,
    is_irreversible boolean not null,
    arguments       text not null check (length(arguments) <= 20000),
    was_cut         boolean not null,
    agent_says      text check (length(agent_says) <= 4000),
    author_says     text check (length(author_says) <= 4000),
    -- the rule that asks; null: the mode does
    rule            text check (length(rule) <= 1000),
    policy_version  bigint not null,
    assurance       text not null,
    options         text[] not null,
    channels        text[] not null,
    ttl_s           integer not null,
    trace_id        text check (length(trace_id) <= 100),
    state           text not null default 'pending',
    created_at      timestamptz not null default now(),
    expires_at      timestamptz not null,
    decided_at      timestamptz,
    -- the key that decided, or the nil uuid for the bootstrap key
    decided_by      uuid,
    decided_owner   text check (length(decided_owner) <= 1000),
    decided_via     text,
    decision        text,
    comment         text check (length(comment) <= 2000),
    -- when the caller was told of a timeout or a lapse
    told_at         timestamptz,
    consumed_at     timestamptz,
    -- the replica that runs the call
    replica_id      uuid,
    -- a server asked in the middle of the call: until when the next round may claim the used permission
    kept_until      timestamptz,
    -- the record of the round that asked
    kept_after      uuid,
    ended_at        timestamptz,
    primary key (tenant_id, id)
);
-- equal asks are one
create unique index consent_requests_pending on consent_requests (tenant_id, principal, digest, pin, assurance)
    where state = 'pending';
create index consent_requests_call on consent_requests (tenant_id, principal, digest, id);
create index consent_requests_principal on consent_requests (tenant_id, principal, created_at);
create index consent_requests_denied on consent_requests (tenant_id, principal, server_id, tool, decided_at)
    where state = 'denied';
create index consent_requests_open on consent_requests (expires_at) where state in ('pending', 'granted');
create index consent_requests_consumed on consent_requests (consumed_at) where state = 'consumed';
create index consent_requests_old on consent_requests (tenant_id, created_at)
    where state not in ('pending', 'granted', 'consumed');

create table consent_grants (
    tenant_id      uuid not null references tenants on delete cascade,
    id             uuid not null,
    principal      uuid not null,
    owner          text not null check (length(owner) <= 1000),
    server_id      uuid not null,
    server         text not null check (length(server) <= 100),
    tool           text not null check (length(tool) <= 1000),
    operation_type text not null,
    pin            text not null check (length(pin) <= 200),
    effect         text not null,
    -- that of the answer
    assurance      text not null,
    request_id     uuid not null,
    granted_by     uuid not null,
    granted_owner  text not null check (length(granted_owner) <= 1000),
    granted_via    text not null,
    created_at     timestamptz not null default now(),
    expires_at     timestamptz not null,
    revoked_at     timestamptz,
    revoked_by     uuid,
    rev            bigint not null,
    primary key (tenant_id, id)
);
create index consent_grants_live on consent_grants (tenant_id, expires_at) where revoked_at is null;

create table consent_fences (
    tenant_id  uuid not null references tenants on delete cascade,
    id         uuid not null,
    principal  uuid not null,
    -- sessions that began before the fence are free of it, but for this one; null: the whole key is fenced
    session_id text check (length(session_id) <= 200),
    begins_at  timestamptz not null default now(),
    ends_at    timestamptz not null,
    primary key (tenant_id, id)
);
create index consent_fences_principal on consent_fences (tenant_id, principal, ends_at);

do $$
declare
    the_table text;
begin
    foreach the_table in array array['consent_requests', 'consent_grants', 'consent_fences'] loop
        execute format('alter table %I enable row level security', the_table);
        execute format('alter table %I force row level security', the_table);
        execute format(
            'create policy tenant on %I to mcpproxy_app
                using (tenant_id = current_setting(''app.tenant'')::uuid)
                with check (tenant_id = current_setting(''app.tenant'')::uuid)', the_table);
        execute format(
            'create policy purge on %I to mcpproxy_owner using (
                tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false)',
            the_table);
        execute format('grant select, insert on %I to mcpproxy_app', the_table);
    end loop;
end
$$;

grant update (state, decided_at, decided_by, decided_owner, decided_via, decision, comment, told_at, consumed_at,
    replica_id, kept_until, kept_after, ended_at) on consent_requests to mcpproxy_app;
grant update (revoked_at, revoked_by, rev) on consent_grants to mcpproxy_app;

-- The sweep over all tenants: what has run out, and calls whose replica died.
create policy system on consent_requests to mcpproxy_system using (true);
grant select (tenant_id, id, state, expires_at, consumed_at, replica_id, kept_until) on consent_requests to mcpproxy_system;
grant update (state, ended_at) on consent_requests to mcpproxy_system;

-- What the owner alone deletes, long after its end.
create policy old on consent_requests to mcpproxy_owner using (
    state not in ('pending', 'granted', 'consumed') and created_at < now() - interval '30 days') with check (false);
create policy old on consent_grants to mcpproxy_owner using (
    least(expires_at, revoked_at) < now() - interval '30 days') with check (false);
create policy old on consent_fences to mcpproxy_owner using (ends_at < now() - interval '1 day') with check (false);
