-- Separation of duties goes by person. Whether a key's owner was named, since it defaults to the key's name, and that
-- to the role; null where the release before wrote the row. Who added a server, since revoked keys go: this holds
-- while adder_key is the added_by, which the release before writes alone.

alter table api_keys add column owner_given boolean;
alter table servers
    add column adder_key     uuid,
    add column adder_owner   text,
    add column adder_creator uuid;

create policy seed on servers to mcpproxy_owner using (true) with check (true);
create policy seed on api_keys to mcpproxy_owner using (true);
update servers s set adder_key = k.key_id, adder_creator = k.created_by,
        adder_owner = case when k.owner <> k.name and k.owner <> k.role then k.owner end
    from api_keys k
    where k.tenant_id = s.tenant_id and k.key_id = s.added_by;
drop policy seed on api_keys;
drop policy seed on servers;
