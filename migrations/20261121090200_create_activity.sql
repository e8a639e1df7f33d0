-- The activity log. A call on a tool that is not of tier read is dispatched only after its row in
-- activity_open is committed; its end deletes that row and inserts the final one, which nobody may change:
-- no role is granted update or delete on activity.

create table activity_open (
    tenant_id          uuid not null,
    started_at         timestamptz not null,
    id                 uuid not null,
    replica_id         uuid not null,
    type               text not null,
    source             text not null,
    server             text,
    tool               text,
    tool_variant       text,
    tier               text,
    intent_type        text,
    intent_sensitivity text,
    intent_reason      text,
    intent_declared    boolean not null default false,
    warning            text,
    status             text not null,
    error_code         text,
    error_message      text,
    decision           text,
    rule               text,
    consent_id         uuid,
    key_id             uuid,
    owner              text,
    client_name        text,
    client_version     text,
    session_id         text,
    request_id         text,
    trace_id           text,
    parent_id          uuid,
    duration_ms        double precision,
    upstream_ms        double precision,
    wait_ms            double precision,
    request_bytes      bigint,
    response_bytes     bigint,
    arguments          text,
    response           text,
    truncated          boolean not null default false,
    primary key (tenant_id, started_at, id)
);

-- xid is the order of commits: a tail of the log reads up to the oldest transaction still running.
create table activity (
    tenant_id          uuid not null,
    started_at         timestamptz not null,
    id                 uuid not null,
    replica_id         uuid not null,
    type               text not null,
    source             text not null,
    server             text,
    tool               text,
    tool_variant       text,
    tier               text,
    intent_type        text,
    intent_sensitivity text,
    intent_reason      text,
    intent_declared    boolean not null default false,
    warning            text,
    status             text not null,
    error_code         text,
    error_message      text,
    decision           text,
    rule               text,
    consent_id         uuid,
    key_id             uuid,
    owner              text,
    client_name        text,
    client_version     text,
    session_id         text,
    request_id         text,
    trace_id           text,
    parent_id          uuid,
    duration_ms        double precision,
    upstream_ms        double precision,
    wait_ms            double precision,
    request_bytes      bigint,
    response_bytes     bigint,
    arguments          text,
    response           text,
    truncated          boolean not null default false,
    ended_at           timestamptz not null default clock_timestamp(),
    xid                xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, started_at, id)
) partition by range (started_at);

create index activity_not_success on activity (tenant_id, started_at desc, id desc) where status <> 'success';

alter table activity_open enable row level security;
alter table activity_open force row level security;
create policy tenant on activity_open to mcpproxy_app using (tenant_id = current_setting('app.tenant')::uuid);
create policy system on activity_open to mcpproxy_system using (true) with check (true);
grant select on activity_open to mcpproxy_app;
grant select, insert, delete on activity_open to mcpproxy_system;

alter table activity enable row level security;
alter table activity force row level security;
create policy tenant on activity to mcpproxy_app using (tenant_id = current_setting('app.tenant')::uuid);
create policy system on activity to mcpproxy_system using (true) with check (true);
grant select on activity to mcpproxy_app;
grant select, insert on activity to mcpproxy_system;
