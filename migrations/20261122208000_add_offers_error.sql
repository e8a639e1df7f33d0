-- What of a server's prompts, resources and templates could not be listed, or has no room, by kind. Beside last_error,
-- which every listing of its tools writes.
alter table servers add column offers_error jsonb;
