-- Pins of prompts, resources and templates: the definition that was approved, and the block. A row of its own beside the
-- offer, so that a pin outlives the offer, and so that programs that do not know of pins go on writing offers. What is
-- stored now is approved by the next file, which reads all tenants' offers as their owner: hence the policy that the file
-- after it drops. This table is not forced under its policies until then.

create table offer_pins (
    tenant_id           uuid not null,
    server_id           uuid not null,
    kind                text not null check (kind in ('prompt', 'resource', 'template')),
    name                text not null,
    -- null: nothing was ever approved, the row is a block
    approved_pin        text,
    approved_definition text,
    approved_by         uuid,
    blocked_at          timestamptz,
    blocked_by          uuid,
    rev                 bigint not null,
    primary key (tenant_id, server_id, kind, name),
    foreign key (tenant_id, server_id) references servers on delete cascade
);
alter table offer_pins enable row level security;
create policy tenant on offer_pins to mcpproxy_app
    using (tenant_id = current_setting('app.tenant')::uuid)
    with check (tenant_id = current_setting('app.tenant')::uuid);
create policy purge on offer_pins to mcpproxy_owner using (
    tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false);
create policy removed on offer_pins to mcpproxy_owner using (
    exists (select from servers s where s.tenant_id = offer_pins.tenant_id
        and s.server_id = offer_pins.server_id and s.removed_at is not null)) with check (false);
grant select, insert, update, delete on offer_pins to mcpproxy_app;

create policy pins_what_is_stored on offers for select to mcpproxy_owner using (true);

-- Kinds whose first listing after a release has set the baseline. Servers that are there have theirs by this migration;
-- the default is for those that come.
alter table servers add column offers_baselined text[] not null default '{prompt,resource,template}';
alter table servers alter column offers_baselined set default '{}';
