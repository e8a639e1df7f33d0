-- Sessions of people who are logged in at the console. A cookie comes before anything says whose tenant it is, so the rows are the
-- platform's: no tenant reads or writes them. The secret in the cookie is stored nowhere.

create table web_sessions (
    -- SHA-256 of the cookie's secret
    session_hash bytea primary key check (octet_length(session_hash) = 32),
    -- by which its holder sees and ends it
    session_id   uuid not null unique,
    kind         text not null check (kind in ('api_key', 'bootstrap_key', 'person')),
    -- null for the bootstrap key
    for_tenant   uuid references tenants,
    -- API key, or identity of a person; nil for the bootstrap key
    principal_id uuid not null,
    -- of the bootstrap key: digest of the key under the cookie's secret, by which another key ends the session
    proof        bytea,
    -- of a person: the login at the provider, and its claims, sealed with a data key of the tenant
    issuer_id    uuid,
    subject      text,
    sid          text,
    data_key_id  uuid,
    sealed       bytea,
    -- of a person: where the provider ends its own session, from its metadata
    logout_url   text,
    address      text,
    created_at   timestamptz not null default now(),
    -- written at most once a minute
    seen_at      timestamptz not null default now(),
    expires_at   timestamptz not null,
    check ((kind = 'bootstrap_key') = (proof is not null)),
    check ((kind = 'bootstrap_key') = (for_tenant is null)),
    check ((kind = 'person') = (issuer_id is not null and subject is not null and data_key_id is not null
        and sealed is not null))
);
create index web_sessions_principal on web_sessions (principal_id, created_at);
create index web_sessions_expires on web_sessions (expires_at);
create index web_sessions_person on web_sessions (issuer_id, subject) where issuer_id is not null;

alter table web_sessions enable row level security;
alter table web_sessions force row level security;
create policy system on web_sessions to mcpproxy_system using (true) with check (true);
grant select, insert, delete on web_sessions to mcpproxy_system;
grant update (seen_at) on web_sessions to mcpproxy_system;
