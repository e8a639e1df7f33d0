-- Replicas and what exactly one of them does. Both hold nothing of a tenant.

create table replicas (
    replica_id   uuid primary key,
    version      text not null,
    started_at   timestamptz not null default now(),
    heartbeat_at timestamptz not null default now(),
    stopped_at   timestamptz
);

-- A lease holds while its replica's heartbeat does; the epoch tells a holder from the one before it.
create table leases (
    name       text primary key,
    replica_id uuid not null references replicas on delete cascade,
    epoch      bigint not null default 1,
    taken_at   timestamptz not null default now()
);

grant select, insert, update, delete on replicas to mcpproxy_system;
grant select, insert, update on leases to mcpproxy_system;
