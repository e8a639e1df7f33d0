-- How often a server, or tools of it, came back lately: stored, so that no restart and no other replica forgets it.
alter table servers
    add column returned_at     timestamptz,
    add column returned_before timestamptz,
    add column holds           integer not null default 0,
    add column held_until      timestamptz;
