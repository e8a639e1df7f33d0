-- Length of the arguments of a permission request, of which `arguments` is the beginning, in bytes. Null in rows of an older release.
alter table consent_requests add column arguments_bytes integer;
