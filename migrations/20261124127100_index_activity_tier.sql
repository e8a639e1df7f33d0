-- Index of the filters tier and not_read, as those of 20261122171000: most records are of tools that only read, or of no
-- tool.
create index activity_tier on activity (tenant_id, tier) where tier <> 'read';
