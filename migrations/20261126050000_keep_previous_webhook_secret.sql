-- The secret of a webhook before the present one, which signs events too while the receiver changes over. It is sealed as the
-- present one is, for the same tenant and url; one that does not open signs nothing. A replica of the release before leaves
-- these columns as they are, and signs with the present secret alone.

alter table consent_webhooks
    add column previous_key_id uuid,
    add column previous_sealed bytea check (length(previous_sealed) <= 4096),
    add column previous_until timestamptz;

grant update (previous_key_id, previous_sealed, previous_until) on consent_webhooks to mcpproxy_app;
