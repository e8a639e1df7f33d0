-- One index for each filter of the log. They have no time in them: a partition is a day, and what is equal shares its
-- entry, so that each costs a few bytes and about a microsecond per record. Values that nearly every record has need
-- none, since the newest records are looked at first (store/activity_find).
create index activity_type on activity (tenant_id, type) where type <> 'tool_call';
create index activity_source on activity (tenant_id, source) where source <> 'mcp';
create index activity_status on activity (tenant_id, status) where status <> 'success';
create index activity_intent_type on activity (tenant_id, intent_type) where intent_type <> 'read';
create index activity_server on activity (tenant_id, server);
create index activity_tool on activity (tenant_id, tool);
create index activity_key on activity (tenant_id, key_id);
create index activity_owner on activity (tenant_id, owner);
create index activity_session on activity (tenant_id, session_id);
create index activity_request on activity (tenant_id, request_id);
-- the one of the same rows above is smaller, and says which status
drop index activity_not_success;
