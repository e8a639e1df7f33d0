-- Why a permission request lapsed before its time was over. Null for all others, for one whose time passed, and in rows of an older release.
alter table consent_requests add column lapse_reason text;
grant update (lapse_reason) on consent_requests to mcpproxy_app;
