-- Place that a server's credentials were given for: the URL without its query. The gateway sends them nowhere else.
-- A replica of the release before knows the origin only. So the database names the place where that replica does not,
-- and forgets credentials that it would take along to another path.

alter table server_secrets add column place text;

create function name_secret_place() returns trigger language plpgsql set search_path from current as $$
begin
    if new.place is null then
        select split_part(url, '?', 1) into new.place from servers
            where tenant_id = new.tenant_id and server_id = new.server_id;
    end if;
    return new;
end
$$;
create trigger name_place before insert on server_secrets
    for each row execute function name_secret_place();

create function forget_moved_secrets() returns trigger language plpgsql set search_path from current as $$
begin
    delete from server_secrets
        where tenant_id = new.tenant_id and server_id = new.server_id and place <> split_part(new.url, '?', 1);
    return null;
end
$$;
create trigger forget_moved after update of url on servers
    for each row when (old.url is distinct from new.url) execute function forget_moved_secrets();

create policy seed on servers to mcpproxy_owner using (true) with check (true);
create policy seed on server_secrets to mcpproxy_owner using (true) with check (true);
update server_secrets set place = (
    select split_part(s.url, '?', 1) from servers s
    where s.tenant_id = server_secrets.tenant_id and s.server_id = server_secrets.server_id);
drop policy seed on server_secrets;
drop policy seed on servers;

-- Another spelling of the same place.
grant update (place) on server_secrets to mcpproxy_app;
