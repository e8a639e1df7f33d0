-- A stream follows the log in the order of commits: where it left off is one probe per day. The rows of a batch
-- share their transaction, so the index costs little more than one entry for each batch and tenant.
create index activity_commits on activity (tenant_id, xid);
