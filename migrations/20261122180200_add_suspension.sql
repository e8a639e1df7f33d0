-- A suspended tenant keeps everything and is served nothing.
alter table tenants add column suspended_at timestamptz;
