-- Keys name the keys that they replace and are replaced by. An expiry that differs from rotation_end was set by somebody after
-- the rotation. line_creators has the roots of the keys that created the keys before this one in its line, with a null for the
-- bootstrap key: they are one person with it. All are null where the release before wrote the row.

alter table api_keys
    add column predecessor uuid,
    add column successor uuid,
    add column rotation_end timestamptz,
    add column line_creators uuid[];
