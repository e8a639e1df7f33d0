-- Place that `relay` of a server was given for: the URL without its query, or the command. A replica of the release before
-- that moves a server leaves both columns alone, and then `relay` counts no more than at a server that was moved.

alter table servers add column relay_place text;

create policy seed on servers to mcpproxy_owner using (true) with check (true);
update servers set relay_place = coalesce(split_part(url, '?', 1), command) where relay is not null;
drop policy seed on servers;
