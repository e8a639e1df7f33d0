-- Requests by who decided them, the last decision first: the console lists what a person decided.
create index consent_requests_decided on consent_requests (tenant_id, decided_by, decided_at desc, id desc)
    where decided_at is not null;
