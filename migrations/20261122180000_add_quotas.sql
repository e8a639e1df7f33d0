-- What the platform says of one tenant, where it is other than what the deployment says of all.
alter table tenants add column quotas jsonb not null default '{}';
comment on column tenants.quotas is 'own bounds by name; what is absent is the deployment''s';
