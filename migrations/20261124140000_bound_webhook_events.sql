-- Events for webhooks end in time, and each tenant's own are found without those of the others.

create index webhook_events_due_of on webhook_events (tenant_id, due_at);
create index webhook_events_gives_up on webhook_events (gives_up_at);

-- Events whose time is over, or of which a tenant has too many, are deleted for all tenants at once.
grant delete on webhook_events to mcpproxy_system;
-- the trigger shortens the time of events whose request went on
grant update (gives_up_at) on webhook_events to mcpproxy_app, mcpproxy_system;

create or replace function note_webhook_event() returns trigger language plpgsql set search_path from current as $$
begin
    insert into webhook_events (tenant_id, id, request_id, state, gives_up_at)
    select new.tenant_id, gen_random_uuid(), new.id, new.state,
        case new.state
            when 'pending' then new.expires_at
            -- how it ended is worth knowing a little longer
            else now() + interval '10 minutes'
        end
    from consent_webhooks w where w.tenant_id = new.tenant_id
    -- whoever removes the webhook removes this event too
    for key share;
    if new.state <> 'pending' then
        -- earlier events of a request are worth no more than the last one
        update webhook_events set gives_up_at = now() + interval '10 minutes'
        where tenant_id = new.tenant_id and request_id = new.id and gives_up_at > now() + interval '10 minutes';
    end if;
    return null;
end
$$;
