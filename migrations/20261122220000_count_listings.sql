-- How often each list of a server has been stored; of the tools also, how often they could not be listed. Whoever lists
-- it reads this before it asks the server, and stores nothing if it is otherwise by then: what others stored may have
-- been read later.
alter table servers
    add column tools_listings     bigint not null default 0,
    add column prompts_listings   bigint not null default 0,
    add column resources_listings bigint not null default 0,
    add column templates_listings bigint not null default 0;
