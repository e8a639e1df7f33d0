-- Kinds of tokens (`typ`) that an issuer's entry accepts; null: all that a token may have, and absence. Scopes that clients are told to ask
-- the issuer for. And people who have not been seen for long: whom nobody blocked is forgotten, so that new ones have a place.

alter table issuers
    add column token_types text[],
    add column advertised_scopes text[] not null default '{}';

create policy system on identities for select to mcpproxy_system using (true);
grant select (tenant_id, last_seen_at, blocked_at, not_before) on identities to mcpproxy_system;
create policy old on identities to mcpproxy_owner using (
    blocked_at is null and not_before is null and last_seen_at < now() - interval '400 days') with check (false);
