-- Issuers of tokens (identity providers) and the tenants that their claims belong to. Both are the platform's: no tenant reads or
-- writes them. `jwks` holds the last good keys, so that a start in an outage works, and one fetch serves all replicas.

create table issuers (
    issuer_id       uuid primary key,
    -- compared byte by byte with `iss`
    issuer          text not null,
    name            text not null,
    host            text,
    -- tenant of all its people; null: issuer_tenants decide
    for_tenant      uuid references tenants,
    audiences       text[] not null,
    algorithms      text[] not null,
    subject_claim   text not null default 'sub',
    owner_claim     text,
    -- claim of assignments that name none
    tenant_claim    text,
    -- as configured; null: discovered
    jwks_uri        text,
    jwks            text,
    jwks_fetched_at timestamptz,
    -- last fetch that a replica began, and the last one that an unknown key caused
    jwks_tried_at   timestamptz,
    jwks_asked_at   timestamptz,
    -- end of the last fetch, good or not, and its error
    jwks_ended_at   timestamptz,
    jwks_error      text,
    created_at      timestamptz not null default now(),
    version         bigint not null default 1
);
create unique index issuers_issuer on issuers (issuer);
create unique index issuers_name on issuers (name);

create table issuer_tenants (
    issuer_id  uuid not null references issuers on delete cascade,
    position   integer not null,
    claim      text not null,
    value      text not null,
    for_tenant uuid not null references tenants,
    primary key (issuer_id, position)
);

alter table issuers enable row level security;
alter table issuers force row level security;
create policy system on issuers to mcpproxy_system using (true) with check (true);
grant select, insert, update, delete on issuers to mcpproxy_system;

alter table issuer_tenants enable row level security;
alter table issuer_tenants force row level security;
create policy system on issuer_tenants to mcpproxy_system using (true) with check (true);
grant select, insert, delete on issuer_tenants to mcpproxy_system;

alter table revisions drop constraint revisions_kind_check;
alter table revisions add constraint revisions_kind_check
    check (kind in ('catalogue', 'access', 'policy', 'vectors', 'issuers'));
