-- Who writes down what a server offers says by which lease, and that is looked up in the same transaction. Leases hold
-- nothing of a tenant.
grant select on leases to mcpproxy_app;
