-- Rotations of a key are one person. The first key of a line of rotations; null: the key itself is it, also where the release
-- before wrote the row. Servers and requests keep it, since revoked keys go.

alter table api_keys add column rotated_root uuid;
alter table servers add column adder_root uuid;
alter table consent_requests add column principal_root uuid;
