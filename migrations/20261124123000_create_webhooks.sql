-- Webhooks: where a tenant wants to be told of permission requests, and what has yet to be told there.

create table consent_webhooks (
    tenant_id    uuid not null references tenants on delete cascade,
    url          text not null check (length(url) <= 2048),
    -- the data key that seals the signing secret, for this tenant and url alone
    key_id       uuid not null,
    sealed       bytea not null check (length(sealed) <= 4096),
    created_at   timestamptz not null default now(),
    succeeded_at timestamptz,
    failed_at    timestamptz,
    last_error   text check (length(last_error) <= 1000),
    primary key (tenant_id)
);

-- Each row is an event that no receiver has confirmed yet; it goes when one has, or at its end.
create table webhook_events (
    tenant_id    uuid not null references tenants on delete cascade,
    id           uuid not null,
    request_id   uuid not null,
    -- of the request, when this happened
    state        text not null,
    created_at   timestamptz not null default clock_timestamp(),
    -- the next try; while a replica holds the event, the end of its hold
    due_at       timestamptz not null default clock_timestamp(),
    gives_up_at  timestamptz not null,
    tries        integer not null default 0,
    is_held      boolean not null default false,
    primary key (tenant_id, id)
);
create index webhook_events_due on webhook_events (due_at);
create index webhook_events_request on webhook_events (tenant_id, request_id, created_at);

do $$
declare
    the_table text;
begin
    foreach the_table in array array['consent_webhooks', 'webhook_events'] loop
        execute format('alter table %I enable row level security', the_table);
        execute format('alter table %I force row level security', the_table);
        execute format(
            'create policy tenant on %I to mcpproxy_app
                using (tenant_id = current_setting(''app.tenant'')::uuid)
                with check (tenant_id = current_setting(''app.tenant'')::uuid)', the_table);
        execute format('create policy system on %I to mcpproxy_system using (true) with check (true)', the_table);
        execute format(
            'create policy purge on %I to mcpproxy_owner using (
                tenant_id in (select t.tenant_id from tenants t where t.deleted_at is not null)) with check (false)',
            the_table);
        execute format('grant select, insert, delete on %I to mcpproxy_app', the_table);
    end loop;
end
$$;

grant update (url, key_id, sealed, created_at, succeeded_at, failed_at, last_error) on consent_webhooks to mcpproxy_app;
grant update (due_at, is_held) on webhook_events to mcpproxy_app;

-- The replicas claim events of all tenants; they read no secret for it.
grant select (tenant_id, succeeded_at, failed_at) on consent_webhooks to mcpproxy_system;
-- the update is for the lock that the trigger takes
grant update (failed_at), delete on consent_webhooks to mcpproxy_system;
grant select, insert, update (due_at, tries, is_held) on webhook_events to mcpproxy_system;

-- In the transaction of the step itself, whichever role and release takes it.
create function note_webhook_event() returns trigger language plpgsql set search_path from current as $$
begin
    insert into webhook_events (tenant_id, id, request_id, state, gives_up_at)
    select new.tenant_id, gen_random_uuid(), new.id, new.state,
        case new.state
            when 'pending' then new.expires_at
            -- how it ended is worth knowing a little longer
            else greatest(new.expires_at, now() + interval '10 minutes')
        end
    from consent_webhooks w where w.tenant_id = new.tenant_id
    -- whoever removes the webhook removes this event too
    for key share;
    return null;
end
$$;
create trigger note_asked after insert on consent_requests
    for each row when ('webhook' = any (new.channels)) execute function note_webhook_event();
create trigger note_ended after update of state on consent_requests
    for each row when ('webhook' = any (new.channels) and new.state <> old.state
        and old.state in ('pending', 'granted')
        and new.state in ('granted', 'denied', 'timed_out', 'cancelled', 'lapsed'))
    execute function note_webhook_event();
