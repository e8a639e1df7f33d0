-- What servers may ask of clients, and say to them, in the middle of a call. Null in rows of the release before: its
-- default.

alter table servers add column relay jsonb;
