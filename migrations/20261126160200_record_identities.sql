-- Identity of the person behind a record: of a login, or of a key whose person an administrator named. Null in records of the
-- release before, whose replicas go on calling their own function of this name, with fewer arguments.

alter table activity_open add column identity_id uuid;
alter table activity add column identity_id uuid;

create function open_activity(
    a_tenant_id uuid[], a_started_at timestamptz[], a_id uuid[], the_replica_id uuid, a_type text[],
    a_source text[], a_server text[], a_tool text[], a_tool_variant text[], a_tier text[], a_intent_type text[],
    a_intent_sensitivity text[], a_intent_reason text[], a_intent_declared boolean[], a_warning text[],
    a_status text[], a_error_code text[], a_error_message text[], a_decision text[], a_rule text[],
    a_consent_id uuid[], a_key_id uuid[], a_owner text[],
    a_client_name text[], a_client_version text[], a_session_id text[], a_request_id text[], a_trace_id text[],
    a_parent_id uuid[], a_duration_ms float8[], a_upstream_ms float8[], a_wait_ms float8[],
    a_request_bytes bigint[], a_response_bytes bigint[], a_arguments text[], a_response text[],
    a_truncated boolean[], a_key_name text[], a_client_address text[], a_identity_id uuid[]
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if pg_catalog.current_setting('role') not in ('none', 'mcpproxy_system')
        or not pg_catalog.pg_has_role(session_user, 'mcpproxy_system', 'member')
    then
        raise insufficient_privilege using message = 'open_activity is for mcpproxy_system';
    end if;
    -- a record that is said to be committed survives a crash of the database; holds until the commit
    perform pg_catalog.set_config('synchronous_commit', 'on', true);
    insert into public.activity_open (
        tenant_id, started_at, id, replica_id, type, source, server, tool, tool_variant, tier, intent_type,
        intent_sensitivity, intent_reason, intent_declared, warning, status, error_code, error_message, decision,
        rule, consent_id, key_id, owner, client_name, client_version, session_id, request_id, trace_id, parent_id,
        duration_ms, upstream_ms, wait_ms, request_bytes, response_bytes, arguments, response, truncated,
        key_name, client_address, identity_id)
    select f.tenant_id, f.started_at, f.id, the_replica_id, f.type, f.source, f.server, f.tool, f.tool_variant,
        f.tier, f.intent_type, f.intent_sensitivity, f.intent_reason, f.intent_declared, f.warning, f.status,
        f.error_code, f.error_message, f.decision, f.rule, f.consent_id, f.key_id, f.owner, f.client_name,
        f.client_version, f.session_id, f.request_id, f.trace_id, f.parent_id, f.duration_ms, f.upstream_ms,
        f.wait_ms, f.request_bytes, f.response_bytes, f.arguments, f.response, f.truncated, f.key_name,
        f.client_address, f.identity_id
    from unnest(
        a_tenant_id, a_started_at, a_id, a_type, a_source, a_server, a_tool, a_tool_variant, a_tier,
        a_intent_type, a_intent_sensitivity, a_intent_reason, a_intent_declared, a_warning, a_status,
        a_error_code, a_error_message, a_decision, a_rule, a_consent_id, a_key_id, a_owner,
        a_client_name, a_client_version, a_session_id, a_request_id, a_trace_id, a_parent_id, a_duration_ms,
        a_upstream_ms, a_wait_ms, a_request_bytes, a_response_bytes, a_arguments, a_response, a_truncated,
        a_key_name, a_client_address, a_identity_id)
    as f (tenant_id, started_at, id, type, source, server, tool, tool_variant, tier, intent_type,
        intent_sensitivity, intent_reason, intent_declared, warning, status, error_code, error_message, decision,
        rule, consent_id, key_id, owner, client_name, client_version, session_id, request_id, trace_id, parent_id,
        duration_ms, upstream_ms, wait_ms, request_bytes, response_bytes, arguments, response, truncated, key_name,
        client_address, identity_id)
    -- sent again after a line broke whose outcome nobody knows
    on conflict do nothing;
end
$$;

do $$
begin
    execute (
        select pg_catalog.format('grant execute on function %s to public', p.oid::pg_catalog.regprocedure)
        from pg_catalog.pg_proc p
        where p.proname = 'open_activity' and p.pronargs = 40 and p.pronamespace = 'public'::pg_catalog.regnamespace);
end
$$;

-- Index of the filter, as those of 20261122171000.
create index activity_identity_id on activity (tenant_id, identity_id) where identity_id is not null;
