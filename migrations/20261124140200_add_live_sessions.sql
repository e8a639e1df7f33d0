-- Sessions with an open stream keep their wishes while others of the same key have none. The replica that serves the stream
-- renews the time; null: no stream, or none that this release serves.

alter table client_sessions add column live_until timestamptz;

-- Each replica renews for all tenants at once.
create policy system on client_sessions to mcpproxy_system using (true) with check (true);
grant select (tenant_id, session_id, seen_at, live_until), update (seen_at, live_until) on client_sessions to mcpproxy_system;
