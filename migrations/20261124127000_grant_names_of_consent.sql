-- The sweep names server and tool of what it ends, as other steps do.
grant select (server, tool) on consent_requests to mcpproxy_system;
