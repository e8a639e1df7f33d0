-- Open requests by key: the end of a turn looks for them, and so does the page that says before how many it ends.
create index consent_requests_of_key on consent_requests (tenant_id, principal) where state in ('pending', 'granted');
