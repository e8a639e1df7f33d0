-- What people and listings note at a tool beside its pin: who blocked it, what became of its hints, and what an
-- operator says instead of its server. On the tool's row, where the approved pin is; the version of an override counts
-- on when the override is taken away, so that none is ever given twice.
alter table tools
    add column blocked_by           uuid,
    add column drift                text check (drift in ('from_read_only', 'to_destructive')),
    add column drifted_at           timestamptz,
    add column override_annotations text,
    add column override_pin         text,
    add column override_version     bigint not null default 0,
    add column override_by          uuid,
    add column overridden_at        timestamptz;
