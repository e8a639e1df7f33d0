-- Tokens at servers that are given in exchange for those of people, and servers that were found to want a login.
alter table server_oauth
    -- value of `audience` in token requests; null: none is sent
    add column audience text,
    -- request for exchanges; null where nothing is exchanged
    add column exchange_grant text;

alter table servers
    -- true if the last listing was refused for want of a login (RFC 9728), and none is configured
    add column wants_login boolean not null default false;
