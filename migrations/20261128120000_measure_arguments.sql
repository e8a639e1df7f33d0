-- Length of the arguments of a permission request, of which `arguments` is the masked beginning, and how much of that beginning is masked, in bytes.
-- Null in rows of an older release.
alter table consent_requests
    add column arguments_bytes integer,
    add column masked_bytes integer;
