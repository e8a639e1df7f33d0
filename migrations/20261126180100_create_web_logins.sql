-- Logins by browser that were begun and have not come back from the identity provider, and those whose person still has to name a
-- tenant. They are the platform's: nothing says yet whose tenant they are.

create table web_logins (
    -- SHA-256 of `state`, which the provider gives back
    state_hash   bytea primary key check (octet_length(state_hash) = 32),
    -- SHA-256 of the cookie of the browser that began the login
    browser_hash bytea not null check (octet_length(browser_hash) = 32),
    issuer_id    uuid not null,
    -- true if the provider says of itself that it names itself in its answers (RFC 9207)
    require_iss  boolean not null,
    -- verifier and nonce, or the ID token of a person who has to name a tenant; under a key made with `state`
    sealed       bytea not null,
    return_to    text not null,
    created_at   timestamptz not null default now(),
    expires_at   timestamptz not null
);
create index web_logins_expires on web_logins (expires_at);
create index web_logins_created on web_logins (created_at);
create index web_logins_browser on web_logins (browser_hash, created_at);

alter table web_logins enable row level security;
alter table web_logins force row level security;
create policy system on web_logins to mcpproxy_system using (true) with check (true);
grant select, insert, delete on web_logins to mcpproxy_system;
