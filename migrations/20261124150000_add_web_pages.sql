-- Servers whose tools are forms of web pages. Replicas of the release before show such a server and never contact it.

alter table servers drop constraint servers_kind_check;
alter table servers add constraint servers_kind_check check (kind in ('http', 'stdio', 'web_page'));

-- Settings of kind web_page: pages, sources, disclosure, execution. Null for other kinds.
alter table servers add column web_page jsonb;
-- What the last listing found on the pages; no snapshot has it.
alter table servers add column page_report jsonb;
